//! What the attributes refuse, and how they say it.

#[test]
fn misuse_is_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    if cfg!(not(feature = "alloc")) {
        cases.compile_fail("tests/ui/without_alloc/*.rs");
    }
}
