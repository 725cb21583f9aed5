fn main() -> Result<(), Box<dyn std::error::Error>> {
    {{crate}}::target(&std::env::var("IFUNC_ADDR")?)
}
