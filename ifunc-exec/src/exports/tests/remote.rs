//! Exports that an image replaces by its own code.

use std::sync::Arc;

use ifunc_abi::context::{REPLACE_BAD_ARGUMENT, REPLACE_REFUSED};
use ifunc_abi::image::{ImageParts, ImportFlags};
use ifunc_abi::status::{Failure, Rejection, Status};

use super::version::{Version, reads_versions};
use super::{import, run};
use crate::Executor;
use crate::arch::testing::code;
use crate::tests::{executor, image, install};

/// Replaces `version` by a function of its own, which returns 9.
fn replaces_by_its_own(signature: &[u8; 17]) -> ImageParts {
    replaces(signature, false)
}

fn replaces(signature: &[u8; 17], is_far: bool) -> ImageParts {
    let (rx, slot) = code::replaces_by_its_own(signature, is_far);
    ImageParts {
        slot: Some(slot),
        imports: vec![import("__ifunc_replace_export", "", ImportFlags::NONE)],
        ..image("replaces", rx)
    }
}

#[test]
fn an_image_replaces_exports_by_its_own_code_if_it_is_allowed() {
    let (executor, events) = executor(1 << 16, 8);
    let parts = replaces_by_its_own(b"fn version()->u64");
    assert_eq!(
        install(&executor, &parts).unwrap_err().reason,
        Rejection::MissingImport
    );
    executor.shared().symbols.write().unwrap().allow_remote_exports();
    let exports = executor.exports();
    let alive = Arc::default();
    let first = Version::new(1, &alive);
    first
        .symbols()
        .into_iter()
        .for_each(|symbol| exports.add(symbol).unwrap());
    let reads = install(&executor, &reads_versions()).unwrap();
    let mut thread = executor.thread().unwrap();
    let own = install(&executor, &parts).unwrap();
    assert_eq!(run(&mut thread, &own), Ok(vec![]));
    drop(own);
    assert_eq!(run(&mut thread, &reads), Ok(vec![9, 1]));
    // Of another type: refused. A code of an ifunc that is no success is a failure: the first is that of a payload.
    let other = install(&executor, &replaces_by_its_own(b"fn version()->i64")).unwrap();
    let failed = run(&mut thread, &other).unwrap_err();
    assert_eq!(
        (REPLACE_REFUSED, failed.status),
        (1, Status::Failed(Failure::Payload))
    );
    // An address that is far from the image. The second code is that of an answer.
    let elsewhere = replaces(b"fn version()->u64", true);
    let elsewhere = install(&executor, &elsewhere).unwrap();
    let failed = run(&mut thread, &elsewhere).unwrap_err();
    assert_eq!(
        (REPLACE_BAD_ARGUMENT, failed.status),
        (2, Status::Failed(Failure::Answer))
    );
    assert_eq!(run(&mut thread, &reads), Ok(vec![9, 1]));
    exports.replace(first.symbols()[0].clone()).unwrap();
    assert_eq!(run(&mut thread, &reads), Ok(vec![1, 1]));
    assert_eq!((exports.waiting(), executor.image_count()), (0, 4));
    assert_eq!(events.0.lock().unwrap().len(), 4);
}
