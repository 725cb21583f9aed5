//! `cargo ifunc test` builds the images first: what runs here is what travels, in this process.

use std::sync::atomic::{AtomicU64, Ordering};

use ifunc_rt::{Source, Target};
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
    // SAFETY: the code that arrives is this package's own, and works on a counter.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen("loopback:c_add").expect("a target");
    let source = Source::connect("loopback:c_add").expect("a source");
    // SAFETY: opens `c_add.so`, which this workspace built, and calls its `c_add_payload_init`.
    let c_add = unsafe { source.load("c_add") }.expect("the image of `c_add`");

    let done = c_add.call(&5_u64.to_ne_bytes()).expect("it is sent");
    while target.poll(&mut counter) > 0 {}
    done.wait().expect("it ran");
    assert_eq!(counter, 42);
    assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 42);
}
