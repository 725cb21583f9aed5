//! Ifuncs that call an export, and one that replaces it.

use ifunc::ReplaceError;
use ifunc::prelude::*;

use super::State;

#[ifunc::import]
unsafe extern "C" {
    /// What something costs.
    safe fn t_tariff(words: u32) -> u32;
}

/// What something costs at this target.
#[ifunc]
pub fn t_price(words: u32, _: &State) -> u32 {
    t_tariff(words)
}

/// Counts, in a static of this image.
extern "C" fn by_calls(words: u32) -> u32 {
    use core::sync::atomic::{AtomicU32, Ordering};
    static CALLS: AtomicU32 = AtomicU32::new(100);
    CALLS.fetch_add(words, Ordering::Relaxed) + words
}

/// Replaces the tariff; `is_same_type`: by a function that has its type. Answers 0, or 1: the target refused it.
#[ifunc]
pub fn t_reprice(is_same_type: bool, _: &State, ctx: &mut Context) -> u32 {
    let text = if is_same_type {
        "fn t_tariff(u32)->u32"
    } else {
        "fn t_tariff(u64)->u32"
    };
    // SAFETY: if the text is that of the export, the function is of that type. Any thread may call it.
    match unsafe { ctx.replace_export("t_tariff", text, by_calls as *const ()) } {
        Ok(()) => 0,
        Err(ReplaceError::Refused) => 1,
        Err(other) => panic!("{other}"),
    }
}
