//! The ifuncs on the host's own data: the real images, on a target in the process of the test. `cargo ifunc test` builds the
//! images first; `cargo test` takes those that were built last.

use {{crate}}::Counter;
use {{ifuncs_crate}}::add;

#[test]
fn adds_to_the_counter() {
    let mut counter = Counter {
        value: 37,
        changes: 0,
    };
    assert_eq!(ifunc_test::run::<add>(5, &mut counter).unwrap(), 42);
    assert_eq!((counter.value, counter.changes), (42, 1));
}
