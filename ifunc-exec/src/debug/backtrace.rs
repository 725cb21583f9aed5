//! The calls that led to a panic, from the stack that it left.
//!
//! An image has no unwind tables. The words on its stack are searched for what a call in the image leaves there: an address
//! right after an instruction that calls. Such a word may be left over from a call that returned, so it counts only if its callee
//! is the function that the previous word is in. That is certain enough for a line in a log, and is used for nothing else.

use super::object::Functions;
use crate::arch::{callee, return_address};

/// Most calls that a report carries.
const MAX_CALLS: usize = 16;
/// Bytes of the stack that are searched.
const MAX_STACK: usize = 64 << 10;

/// Offsets in the image of addresses that calls in it left on the stack, innermost first. `stack` begins where `__ifunc_panic` found its return address; `base` and `code` are the image's.
pub(super) fn calls(base: usize, code: &[u8], stack: impl Iterator<Item = usize>) -> Vec<u32> {
    stack
        .take(MAX_STACK / size_of::<usize>())
        .enumerate()
        .filter_map(|(index, word)| {
            let offset = return_address(word)
                .checked_sub(base)
                .filter(|&offset| offset > 0 && offset <= code.len())? as u32;
            // The first is a return address for certain.
            (index == 0 || callee(code, offset).is_some()).then_some(offset)
        })
        .take(MAX_CALLS)
        .collect()
}

/// The function that panicked, as `NAME+0xOFFSET`: that of the innermost call that is not in the language's own libraries.
/// Without known functions, the offsets in the image of `name`.
#[must_use]
pub fn describe(name: &str, code: &[u8], calls: &[u32], functions: Option<&Functions>) -> String {
    place(name, code, calls, functions, false)
}

/// As [`describe`], of a fault. `is_placed`: the first of `calls` is the offset of the instruction plus 1.
#[must_use]
pub fn describe_fault(
    name: &str,
    code: &[u8],
    calls: &[u32],
    functions: Option<&Functions>,
    is_placed: bool,
) -> String {
    place(name, code, calls, functions, is_placed)
}

fn place(name: &str, code: &[u8], calls: &[u32], functions: Option<&Functions>, is_placed: bool) -> String {
    // A source has them from a peer.
    let mut calls = calls
        .iter()
        .copied()
        .filter(|&word| word > 0 && word as usize <= code.len())
        .take(MAX_CALLS);
    let Some(first) = calls.next() else {
        return String::new();
    };
    let mut here = first;
    let mut backtrace = vec![first];
    for call in calls {
        let Some(to) = callee(code, call) else { continue };
        let leads_here = match functions {
            // After a call that never returns another function may begin.
            Some(known) => known.at(to).is_some_and(|f| Some(f) == known.at(here - 1)),
            None => to < here,
        };
        if leads_here {
            backtrace.push(call);
            here = call;
        }
    }
    // An instruction is shown by its own offset.
    let shown_at = |index: usize, at: u32| at - u32::from(is_placed && index == 0);
    let backtrace = || backtrace.iter().copied().enumerate();
    let Some(functions) = functions else {
        let offsets = backtrace().map(|(index, at)| format!("{:#x}", shown_at(index, at)));
        let offsets: Vec<_> = offsets.collect();
        return format!("{name}+[{}]", offsets.join(" < "));
    };
    let named = backtrace().filter_map(|(index, at)| {
        let function = functions.at(at - 1)?;
        let shown = format!("{:#}", rustc_demangle::demangle(&function.name));
        Some((format!("{shown}+{:#x}", shown_at(index, at) - function.at), shown))
    });
    let mut last = String::new();
    for (place, function) in named {
        last = place;
        if !is_of_the_language(&function) {
            break;
        }
    }
    last
}

/// Whether a function is one of `core`, `alloc`, the compiler or the SDK.
fn is_of_the_language(function: &str) -> bool {
    let path = function.trim_start_matches(['<', '&', '[']);
    ["core::", "alloc::", "__rustc", "ifunc::", "rust_begin_unwind"]
        .iter()
        .any(|own| path.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::super::object::Function;
    use super::*;
    use crate::arch::testing::code::{SHORTEST, put_call};

    /// Three functions of 16 bytes, each of which has a call that returns four bytes before its end: the first calls the second, the
    /// second the third, and the third something outside.
    fn code() -> Vec<u8> {
        let mut code = vec![0x90; 48];
        for (back, to) in [(12, 16), (28, 32), (44, 4000)] {
            put_call(&mut code, back, to);
        }
        code
    }

    #[test]
    fn calls_are_distinguished_from_other_words() {
        const BASE: usize = 0x7000;
        let stack = [
            BASE + 44,
            7,
            BASE + 28,
            BASE + 29,
            BASE - 1,
            BASE + 12,
            BASE + 48,
            usize::MAX,
        ];
        let found = calls(BASE, &code(), stack.into_iter());
        assert_eq!(found, [44, 28, 12]);
        assert_eq!(describe("add", &code(), &found, None), "add+[0x2c < 0x1c < 0xc]");
        // A call that leads elsewhere is left over.
        assert_eq!(describe("add", &code(), &[28, 44, 12], None), "add+[0x1c < 0xc]");
        assert_eq!(describe("add", &code(), &[], None), "");
    }

    #[test]
    fn the_first_word_counts_whatever_precedes_it() {
        assert_eq!(calls(0x7000, &code(), [0x7000 + 3].into_iter()), [3]);
        assert_eq!(calls(0x7000, &code(), [3].into_iter()), []);
        let many = std::iter::repeat(0x7000 + 12);
        assert_eq!(calls(0x7000, &code(), many).len(), MAX_CALLS);
    }

    #[test]
    fn calls_from_a_peer_are_checked() {
        let functions = Functions::new(
            ["a", "b", "c"]
                .iter()
                .enumerate()
                .map(|(n, name)| Function::new(16 * n as u32, 16, name))
                .collect(),
        );
        let hostile = [0, u32::MAX, 1 << 31, 49];
        assert_eq!(describe("add", &code(), &hostile, None), "");
        assert_eq!(describe("add", &code(), &hostile, Some(&functions)), "");
        let among = [0, 44, u32::MAX, 0, 28, 12];
        assert_eq!(describe("add", &code(), &among, None), "add+[0x2c < 0x1c < 0xc]");
        assert_eq!(describe("add", &code(), &among, Some(&functions)), "c+0xc");
        assert_eq!(
            describe_fault("add", &code(), &among[1..], Some(&functions), true),
            "c+0xb"
        );
        assert_eq!(describe_fault("add", &code(), &hostile, None, true), "");
        // A call that never returns may end the code.
        assert_eq!(describe("add", &code(), &[48], Some(&functions)), "c+0x10");
        let many: Vec<u32> = std::iter::repeat_n(12, 1 << 20).collect();
        assert!(describe("add", &code(), &many, None).len() < 32 * MAX_CALLS);
        // An image without calls, called at its beginning.
        assert_eq!(calls(0x7000, &code(), [0x7000].into_iter()), []);
    }

    #[test]
    fn a_stack_is_searched_up_to_a_limit() {
        let mut searched = 0;
        let words = std::iter::repeat(0).inspect(|_| searched += 1);
        assert_eq!(calls(0x7000, &code(), words.take(1 << 16)), []);
        assert_eq!(searched, (64 << 10) / 8);
    }

    #[test]
    fn a_call_leads_to_a_place_before_its_callee_went_on() {
        let mut code = code();
        let last = code.len() - SHORTEST;
        // To where the function begins that the first word is the beginning of: it is not in that one.
        put_call(&mut code, 12, 16);
        // To the end of the code, and to its last instruction.
        put_call(&mut code, 28, 48);
        put_call(&mut code, 44, last);
        assert_eq!(
            [12, 28, 44].map(|at| callee(&code, at)),
            [Some(16), None, Some(last as u32)]
        );
        assert_eq!(describe("add", &code, &[16, 12], None), "add+[0x10]");
        assert_eq!(describe("add", &code, &[17, 12], None), "add+[0x11 < 0xc]");
    }

    #[test]
    fn functions_of_the_language_are_skipped() {
        assert!(is_of_the_language("core::panicking::panic_fmt"));
        assert!(is_of_the_language("<core::fmt::Arguments>::as_str"));
        assert!(!is_of_the_language("add_main"));
        assert!(!is_of_the_language("corelib::add"));
    }
}
