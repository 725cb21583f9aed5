//! `cargo ifunc test` builds the images first: what runs here is what travels, in this process.

use std::sync::atomic::{AtomicU64, Ordering};

use ifunc_rt::test::Fixture;
// What the package holds is found by name; this only says that the images belong to it.
use {{ifuncs_crate}} as _;

/// What the target was told.
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
    // SAFETY: `c_add.so` is of this workspace, and works on a counter.
    unsafe { fixture.run_by_name("c_add", &5_u64.to_ne_bytes(), &mut counter) }.unwrap();
    assert_eq!(counter, 42);
    assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 42);
}
