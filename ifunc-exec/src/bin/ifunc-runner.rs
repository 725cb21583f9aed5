//! The program that a target of the level `process` runs images in. Targets start it; by hand it does nothing.

fn main() {
    ifunc_exec::runner::run_if_started_by_target();
    eprintln!("ifunc-runner: a target starts this program, to run ifuncs of the level `process` in it");
    std::process::exit(2);
}
