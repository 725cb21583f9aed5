//! The source.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    example_01_hello::source(&std::env::var("IFUNC_ADDR")?)
}
