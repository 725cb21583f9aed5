//! A target of the fault matrix: writes down what it runs.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    ifunc_tests::faults::target::run()
}
