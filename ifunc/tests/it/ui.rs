//! The errors of the attributes for misuse.

#[test]
#[ignore = "nightly: compiles some 45 crates"]
fn misuse_is_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    if cfg!(not(feature = "alloc")) {
        cases.compile_fail("tests/ui/without_alloc/*.rs");
    }
}
