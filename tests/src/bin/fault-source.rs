//! A source of the fault matrix: does what it reads on its standard input.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    ifunc_tests::faults::source::run()
}
