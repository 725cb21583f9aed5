//! `cargo xtask aarch64`: ifuncs between machines of two architectures. AArch64's programs run under QEMU.

mod chain;
mod daemon;
mod emulated;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::examples::{EXAMPLES, Setting, Side};
use crate::plan::Tier;
use crate::process::{cargo, end, last_line, output};
use crate::steps::Steps;
use tools::{TRIPLE, Tools};

/// The command.
pub(crate) fn command(options: &[String]) -> ExitCode {
    match options.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tools"] => end(tools()),
        [] => steps(""),
        ["--only", text] => steps(text),
        _ => {
            eprintln!(
                "error: unknown arguments: {}\nhelp: cargo xtask aarch64 [tools | --only TEXT]",
                options.join(" ")
            );
            ExitCode::from(2)
        }
    }
}

/// Fetches the tools, and says how a shell gets the environment in which cargo uses them.
fn tools() -> Result<(), String> {
    let tools = Tools::ensure()?;
    emulated::ensure(&tools)?;
    println!(". {}", tools.exports().display());
    Ok(())
}

fn steps(only: &str) -> ExitCode {
    let mut steps = Steps::new(Tier::Nightly);
    run(&mut steps, only);
    steps.summary()
}

/// All of it, as steps.
pub(crate) fn full(steps: &mut Steps) {
    run(steps, "");
}

/// The steps with this text in their names.
fn run(steps: &mut Steps, only: &str) {
    let mut tools = None;
    let is_there = steps.step("what builds and runs programs for AArch64", || {
        let found = Tools::ensure()?;
        emulated::ensure(&found)?;
        tools = Some(found);
        Ok(String::new())
    });
    let (true, Some(tools)) = (is_there, tools) else {
        return;
    };
    let environment = environment(&tools);
    let mut step = |name: &str, work: &dyn Fn() -> Result<String, String>| {
        if name.contains(only) {
            steps.step(name, work);
        }
    };
    for package in ["ifunc-abi", "ifunc-proto", "ifunc-exec"] {
        step(&format!("unit tests of {package} on AArch64"), &|| {
            unit_tests(package, &environment)
        });
    }
    for transport in ["shm", "ucx"] {
        for (option, way) in [("--target-on", "to AArch64"), ("--source-on", "from AArch64")] {
            let side = Side {
                option,
                triple: TRIPLE,
                environment: &environment,
            };
            for (name, run) in EXAMPLES {
                step(&format!("{name} over {transport}, {way}"), &|| {
                    run(Setting::across(transport, side))
                });
            }
        }
        step(
            &format!("a chain of both architectures over {transport}"),
            &|| chain::run(transport, &environment),
        );
    }
    step("an ifuncd on AArch64", &|| daemon::run(&environment));
    step("the corpus, sent to AArch64", &|| corpus(&environment));
}

/// What cargo and QEMU need. The compiler is another one than that of all other parts, and builds in a folder of its own.
fn environment(tools: &Tools) -> Vec<(&'static str, PathBuf)> {
    let mut environment = tools.environment().to_vec();
    environment.push(("CARGO_TARGET_DIR", folder()));
    environment
}

/// The target directory of these builds.
fn folder() -> PathBuf {
    crate::target().join("aarch64")
}

fn unit_tests(package: &str, environment: &[(&'static str, PathBuf)]) -> Result<String, String> {
    let mut tests = cargo(["test", "--quiet", "--locked", "--target", TRIPLE, "--lib"]);
    tests
        .args(["--package", package])
        .args((package == "ifunc-abi").then_some("--features=alloc"))
        // Tests compile libraries, and build scripts are programs of this machine.
        .env("CC", "aarch64-linux-gnu-gcc")
        .env("CC_x86_64_unknown_linux_gnu", "cc")
        .envs(environment.iter().cloned());
    let said = output(&mut tests)?;
    let result = said.lines().rfind(|line| line.starts_with("test result: "));
    Ok(result.unwrap_or_default().to_owned())
}

/// Sends the corpus from this machine to one of the other architecture, and compares.
fn corpus(environment: &[(&'static str, PathBuf)]) -> Result<String, String> {
    let driver = ["--quiet", "--locked", "--package", "corpus-driver"];
    let mut build = cargo(["build", "--target", TRIPLE]);
    output(build.args(driver).envs(environment.iter().cloned()))?;
    let program = folder().join(TRIPLE).join("debug/corpus-driver");
    let mut run = cargo(["run"]);
    run.args(driver)
        .args(["--", "--target-on", TRIPLE])
        .arg(program)
        .envs(environment.iter().cloned());
    output(&mut run).map(|said| last_line(&said))
}

/// The programs of an example that `cargo ifunc run` has built, in the folder of its run.
fn programs(run: &str) -> PathBuf {
    folder().join("ifunc/run").join(run)
}

/// The libraries that programs of a platform open.
fn libraries(triple: Option<&str>) -> PathBuf {
    let libraries = folder().join("ifunc");
    libraries
        .join(triple.unwrap_or_default())
        .join(Path::new("release"))
}
