//! Exports that change under images that call a function and read a variable.

mod bindings;
mod libraries;
mod model;
mod remote;
mod version;
mod versions;

/// What `version` needs of this machine.
mod machine {
    pub(super) use crate::arch::ARCH;
    pub(super) use crate::arch::testing::code;
    pub(super) use crate::page::page_size;
}

use std::ffi::c_void;
use std::sync::Arc;

use ifunc_abi::image::{ImageParts, ImportFlags, ImportPart};
use ifunc_abi::refusal::Failed;
use ifunc_abi::status::{Rejection, Status};

use crate::arch::testing::code;
use crate::tests::image;
use crate::{ExecThread, Executor, ImageExecutor, InstalledImage, Invocation, Symbol, fingerprint};

fn import(symbol: &str, text: &str, flags: ImportFlags) -> ImportPart {
    ImportPart {
        symbol: symbol.into(),
        flags,
        fingerprint: if text.is_empty() { 0 } else { fingerprint::of(text) },
    }
}

/// Answers the address that `symbol` is bound to.
fn finds(symbol: &str, text: &str, flags: ImportFlags) -> ImageParts {
    let (rx, slot) = code::finds();
    ImageParts {
        slot: Some(slot),
        imports: vec![import(symbol, text, flags)],
        ..image("finds", rx)
    }
}

/// Runs an image, and returns the words of its answer.
fn run(thread: &mut ExecThread, image: &Arc<InstalledImage>) -> Result<Vec<u64>, Failed> {
    let mut answer = [0; 64];
    let mut session = thread.session();
    let entry = ImageExecutor::entries(image).next().unwrap();
    // SAFETY: the images above take no payload and no target arguments.
    let invocation = unsafe { Invocation::new(&*entry, [].as_ptr(), 0, std::ptr::null_mut::<c_void>(), 1) };
    let len = ImageExecutor::run(&mut session, || invocation, Some(&mut answer)).map_err(|failed| *failed)?;
    let (words, []) = answer[..len].as_chunks() else {
        panic!("{len} bytes")
    };
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

fn rejected(outcome: Result<Vec<u64>, Failed>, reason: Rejection) -> String {
    let failed = outcome.unwrap_err();
    assert_eq!(failed.status, Status::Rejected(reason));
    String::from_utf8(failed.detail).unwrap()
}

/// A variable of any type: only its address counts.
fn variable(name: &'static str, text: &'static str) -> (Symbol, u64) {
    let address = Box::leak(Box::new(0u64));
    // SAFETY: never read.
    let symbol = unsafe { Symbol::typed(name, text, (&raw const *address).cast()) };
    (symbol, (&raw const *address).addr() as u64)
}
