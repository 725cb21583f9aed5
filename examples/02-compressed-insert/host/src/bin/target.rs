//! The target.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    example_02_compressed_insert::target(&std::env::var("IFUNC_ADDR")?)
}
