//! `cargo ifunc test` builds the images first, so these tests run the real images in one process.

use {{ifuncs_crate}}::add;

#[test]
fn adds_to_the_counter() {
    let mut counter = 37_u64;
    assert_eq!(ifunc_test::run::<add>(5, &mut counter).unwrap(), 42);
    assert_eq!(counter, 42);
}
