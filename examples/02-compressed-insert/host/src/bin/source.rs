//! The source.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    example_02_compressed_insert::source(&std::env::var("IFUNC_ADDR")?)
}
