//! cargo ifunc
fn main() {}
