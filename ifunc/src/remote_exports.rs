//! Replacing what a target exports by code of the own image, where the target's builder allows it.

use core::ffi::c_void;
use core::fmt;

use ifunc_abi::context::{REPLACE_BAD_ARGUMENT, REPLACE_OK};

use crate::Context;

/// Why an export was not [replaced](Context::replace_export).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplaceError {
    /// No export has the name, or it has another type. The target logs which, and both types.
    Refused,
    /// The address is not of this image, or a text is longer than 4096 bytes.
    Argument,
    /// No target runs the ifunc: a unit test.
    NoTarget,
}

impl fmt::Display for ReplaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the target refuses it; its log says why",
            Self::Argument => "the address is not of this image, or a text is too long",
            Self::NoTarget => "no target runs the ifunc",
        })
    }
}

impl core::error::Error for ReplaceError {}

impl Context<'_> {
    /// Replaces the export `name` of the target by a function or a variable of this image. What the ifuncs of all sources call by
    /// this name is the replacement from then on; the image stays installed as long as it is. Calls that run end in the version that
    /// they entered.
    ///
    /// `signature` is the text of the type, as `cargo ifunc inspect --json` prints it for an image that imports the export: `fn
    /// score(u32)->u32`, `static level:u32`. The target compares it with that of the export. `replacement` is the address of a
    /// C function of the prototype that `inspect` prints beside it, or of the variable.
    ///
    /// The target's builder must allow it: `Target::builder().allow_remote_exports(true)`. Elsewhere the image is refused.
    ///
    /// ```
    /// #![no_std]
    /// use ifunc::prelude::*;
    ///
    /// /// Half of what the target computes by itself.
    /// extern "C" fn half(words: u32) -> u32 {
    ///     words / 2
    /// }
    ///
    /// /// Whether the target took it.
    /// #[ifunc]
    /// pub fn upgrade(_: (), _: &u64, ctx: &mut Context) -> bool {
    ///     // SAFETY: `half` is what the text describes, and touches nothing.
    ///     unsafe { ctx.replace_export("score", "fn score(u32)->u32", half as *const ()) }.is_ok()
    /// }
    /// # fn main() {
    /// #     assert!(!upgrade((), &0, &mut Context::detached()));
    /// # }
    /// ```
    ///
    /// # Safety
    /// `replacement` is the address of what `signature` describes, in its C form. Ifuncs of any source may use it at any time
    /// from then on, on each thread that serves.
    ///
    /// # Errors
    /// See [`ReplaceError`]: then nothing has changed.
    pub unsafe fn replace_export(
        &mut self,
        name: &str,
        signature: &str,
        replacement: *const (),
    ) -> Result<(), ReplaceError> {
        let raw = self.raw.as_deref_mut().ok_or(ReplaceError::NoTarget)?;
        // SAFETY: the context is valid (`from_raw`); the rest is the caller's promise.
        outcome(unsafe { replace(raw, name, signature, replacement.cast()) })
    }
}

/// What the code of the target's function means.
fn outcome(code: u32) -> Result<(), ReplaceError> {
    match code {
        REPLACE_OK => Ok(()),
        REPLACE_BAD_ARGUMENT => Err(ReplaceError::Argument),
        _ => Err(ReplaceError::Refused),
    }
}

#[cfg(ifunc_image)]
unsafe fn replace(
    ctx: &mut ifunc_abi::context::Context,
    name: &str,
    signature: &str,
    address: *const c_void,
) -> u32 {
    unsafe extern "C" {
        fn __ifunc_replace_export(
            ctx: *mut ifunc_abi::context::Context,
            name: *const u8,
            name_len: usize,
            signature: *const u8,
            signature_len: usize,
            address: *const c_void,
        ) -> u32;
    }
    // SAFETY: the caller's promise.
    unsafe {
        __ifunc_replace_export(
            ctx,
            name.as_ptr(),
            name.len(),
            signature.as_ptr(),
            signature.len(),
            address,
        )
    }
}

/// Outside of images, no target runs the ifunc.
#[cfg(not(ifunc_image))]
unsafe fn replace(_: &mut ifunc_abi::context::Context, _: &str, _: &str, _: *const c_void) -> u32 {
    ifunc_abi::context::REPLACE_REFUSED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of `ifunc_exec::exports::remote`.
    #[test]
    fn the_codes_of_the_target_are_errors() {
        use ifunc_abi::context::REPLACE_REFUSED;

        assert_eq!(outcome(REPLACE_OK), Ok(()));
        assert_eq!(outcome(REPLACE_REFUSED), Err(ReplaceError::Refused));
        let error = outcome(REPLACE_BAD_ARGUMENT).unwrap_err();
        assert_eq!(error, ReplaceError::Argument);
        assert!(std::format!("{error}").contains("image"), "{error}");
    }

    #[test]
    fn without_a_target_nothing_is_replaced() {
        // SAFETY: no target takes the address.
        let replaced =
            unsafe { Context::detached().replace_export("score", "fn score(u32)->u32", core::ptr::null()) };
        let error = replaced.unwrap_err();
        assert_eq!(error, ReplaceError::NoTarget);
        assert!(std::format!("{error}").contains("target"), "{error}");
    }
}
