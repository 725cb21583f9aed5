//! `cargo ifunc test` builds the images first: what runs here is what travels, in this process.

use ifunc_rt::{Source, Target};
use {{ifuncs_crate}}::add;

#[test]
fn adds_to_the_counter() {
    let mut counter = 37_u64;
    // SAFETY: the code that arrives is this package's own.
    let builder = unsafe { Target::builder().accept_code() };
    let mut target = builder.listen("loopback:add").expect("a target");
    let source = Source::connect("loopback:add").expect("a source");
    let add = source.register::<add>().expect("the image of `add`");

    let answer = add.call(&5).expect("it is sent");
    while target.poll(&mut counter) > 0 {}
    assert_eq!(answer.wait().expect("an answer"), 42);
    assert_eq!(counter, 42);
}
