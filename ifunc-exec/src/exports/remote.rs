//! Exports that an image replaces by its own functions and variables, if the target's builder allows it.
//!
//! ```c
//! // 0: replaced; 1: refused (the target logs why); 2: a text is not UTF-8, or the address is not of this image.
//! uint32_t __ifunc_replace_export(struct ifunc_context *, const char *name, size_t name_len,
//!                                 const char *signature, size_t signature_len, const void *address);
//! ```
//!
//! The image stays installed as long as an export is its own.

use std::ffi::c_void;
use std::sync::Arc;

use ifunc_abi::context::Context;

use super::ExportError;
use crate::gate::exports_of_invocation;
use crate::{InstalledEntry, Symbol};

/// The import's name.
pub(crate) const REPLACE_EXPORT: &str = "__ifunc_replace_export";

const REPLACED: u32 = 0;
const REFUSED: u32 = 1;
const BAD_ARGUMENT: u32 = 2;

/// # Safety
/// `ctx` is the context of the invocation that calls it; the texts are readable for their lengths.
pub(crate) unsafe extern "C" fn replace_export(
    ctx: *mut Context,
    name: *const u8,
    name_len: usize,
    signature: *const u8,
    signature_len: usize,
    address: *const c_void,
) -> u32 {
    ifunc::host::through_gate(move || {
        let text = |text: *const u8, len: usize| {
            let is_text = !text.is_null() && len <= 4096;
            // SAFETY: the caller's promise.
            let bytes = is_text.then(|| unsafe { std::slice::from_raw_parts(text, len) })?;
            std::str::from_utf8(bytes).ok().map(str::to_owned)
        };
        // SAFETY: the context of an invocation holds its entry, which lives while it runs.
        let entry = unsafe { ctx.as_ref().map(|ctx| &*ctx.host.cast::<InstalledEntry>()) };
        let (Some(entry), Some(name), Some(signature)) =
            (entry, text(name, name_len), text(signature, signature_len))
        else {
            return BAD_ARGUMENT;
        };
        let image = entry.image();
        if !image.contains(address.addr()) {
            return BAD_ARGUMENT;
        }
        // SAFETY: the target accepted the image, which says that this is its type; the address is of its memory, which
        // the guard keeps.
        let symbol = unsafe { Symbol::typed(name.clone(), signature, address) };
        let replaced = match exports_of_invocation() {
            Some(exports) => exports.replace(symbol.owned_by(Arc::clone(image) as _)),
            None => Err(ExportError::TargetGone),
        };
        match replaced {
            Ok(()) => REPLACED,
            Err(why) => {
                tracing::warn!(target: crate::LOG, ifunc = %entry.name, name, %why, "export not replaced");
                REFUSED
            }
        }
    })
}
