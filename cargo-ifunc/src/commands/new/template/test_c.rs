//! `cargo ifunc test` builds the images first, so these tests run the real images in one process.

use std::sync::atomic::{AtomicU64, Ordering};

use ifunc_test::Fixture;
// `run_by_name` finds images by name; this import only makes the package a dependency.
use {{ifuncs_crate}} as _;

/// The last announced counter.
static ANNOUNCED: AtomicU64 = AtomicU64::new(0);

/// A function of the target that `c_add` calls.
#[ifunc::export]
pub fn announce(counter: u64) {
    ANNOUNCED.store(counter, Ordering::Relaxed);
}

#[test]
fn adds_and_announces() {
    let mut counter = 37_u64;
    let mut fixture = Fixture::new().unwrap();
    // SAFETY: this workspace built `c_add.so`, which expects a counter.
    unsafe { fixture.run_by_name("c_add", &5_u64.to_ne_bytes(), &mut counter) }.unwrap();
    assert_eq!(counter, 42);
    assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 42);
}
