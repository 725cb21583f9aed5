//! The target.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    example_01_hello::target(&std::env::var("IFUNC_ADDR")?)
}
