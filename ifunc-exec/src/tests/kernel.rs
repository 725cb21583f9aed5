//! What the kernel refuses.

use std::thread;

use ifunc_abi::status::Rejection;

pub(crate) use super::refuse::{is_emulated, refuse};
use super::{add, executor, install, run};
use crate::Executor as _;

#[test]
fn an_image_that_the_kernel_has_no_memory_for_is_refused() {
    let alone = thread::spawn(|| {
        let (executor, _) = executor(1 << 16, 4);
        // Code is written into the arena by this call.
        if !refuse(libc::SYS_pwritev) {
            return executor;
        }
        let refusal = install(&executor, &add()).unwrap_err();
        assert_eq!(refusal.reason, Rejection::Resources);
        assert!(
            refusal.detail.starts_with("the kernel refused memory for code: "),
            "{refusal:?}"
        );
        assert_eq!(executor.image_count(), 0);
        executor
    });
    // Another thread may install it.
    let executor = alone.join().unwrap();
    let added = install(&executor, &add()).unwrap();
    assert_eq!(run(&executor, &added, Some(&mut [0; 8])), (42, Ok(8)));
}
