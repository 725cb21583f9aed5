fn main() -> Result<(), Box<dyn std::error::Error>> {
    {{crate}}::source(&std::env::var("IFUNC_ADDR")?)
}
