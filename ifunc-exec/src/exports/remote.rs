//! Exports that an image replaces by its own functions and variables, if the target's builder allows it.
//!
//! The import is [`REPLACE_EXPORT`](ifunc_abi::symbols::REPLACE_EXPORT).
//!
//! The image stays installed as long as an export is its own.

use std::ffi::c_void;
use std::sync::Arc;

use ifunc_abi::context::{Context, REPLACE_BAD_ARGUMENT, REPLACE_OK, REPLACE_REFUSED};

use super::ExportError;
use crate::gate::exports_of_invocation;
use crate::{InstalledEntry, Symbol};

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
            return REPLACE_BAD_ARGUMENT;
        };
        let image = entry.image();
        if !image.contains(address.addr()) {
            return REPLACE_BAD_ARGUMENT;
        }
        // SAFETY: the target accepted the image, which says that this is its type; the address is of its memory, which
        // the guard keeps.
        let symbol = unsafe { Symbol::typed(name.clone(), signature, address) };
        let replaced = match exports_of_invocation() {
            Some(exports) => exports.replace(symbol.owned_by(Arc::clone(image) as _)),
            None => Err(ExportError::TargetGone),
        };
        match replaced {
            Ok(()) => REPLACE_OK,
            Err(why) => {
                tracing::warn!(target: crate::LOG, ifunc = %entry.name, name, %why, "export not replaced");
                REPLACE_REFUSED
            }
        }
    })
}
