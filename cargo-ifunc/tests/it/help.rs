//! Runs every example of every subcommand's `--help`, in a new project outside the checkout, as a new user
//! would.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::{IMAGES, Ran, TARGET, c_ifunc, ifunc, listening, lock_target, ran, write};

/// The examples at the end of a help text, without their comments.
fn examples(help: &str) -> Vec<String> {
    let (_, block) = help
        .rsplit_once("\nExamples:\n")
        .expect("the help ends with examples");
    let lines: Vec<&str> = block.trim_end().lines().collect();
    assert!(
        lines.iter().all(|line| line.starts_with("  cargo ifunc ")),
        "a line after `Examples:` is not an example in\n{help}"
    );
    lines
        .iter()
        .map(|line| {
            line.split("  #")
                .find(|part| !part.is_empty())
                .unwrap_or_default()
                .trim()
                .to_owned()
        })
        .collect()
}

/// The names of the subcommands, as `--help` lists them.
fn subcommands() -> Vec<String> {
    let help = ifunc(Path::new("."), &["--help"]).succeeded().out;
    let (_, list) = help.split_once("\nCommands:\n").expect("a list of commands");
    let names = list.lines().take_while(|line| !line.is_empty());
    names
        // A description that is wrapped goes on further to the right.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty())
        .filter(|name| *name != "help")
        .map(Into::into)
        .collect()
}

/// Runs a command line in a shell in which `cargo ifunc` is installed.
fn shell(folder: &Path, line: &str) -> Ran {
    let command = PathBuf::from(env!("CARGO_BIN_EXE_cargo-ifunc"));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = command
        .parent()
        .map(Path::to_owned)
        .into_iter()
        .chain(std::env::split_paths(&paths));
    let mut shell = Command::new("sh");
    shell
        .args(["-ec", line])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths).expect("a path"))
        // The tests debug nothing that they build.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .stdin(Stdio::null());
    for name in [
        "CARGO_TARGET_DIR",
        "CARGO_TERM_COLOR",
        "CLICOLOR_FORCE",
        "NO_COLOR",
        "IFUNC_TRANSPORT",
        "IFUNC_LIB_DIR",
    ] {
        shell.env_remove(name);
    }
    ran(&mut shell)
}

const EXAMPLE: &str = "#![no_std]\nuse ifunc::prelude::*;\n\n\
    /// Doubles the counter.\n#[ifunc]\npub fn wave(_: u64, counter: &mut u64) { *counter *= 2; }\n";

#[test]
#[ignore = "nightly: builds a new project with its runtime and runs some thirty commands in it"]
fn a_new_project_and_every_example() {
    // Other tests build images of the same names, for other types.
    let _lock = lock_target();
    let folder = tempfile::tempdir().expect("folder");
    // The project builds in the shared target directory. Output of an earlier run there must not count.
    let before = match Path::new(TARGET).exists() {
        true => "with what other tests built",
        false => "with nothing built before",
    };
    let wave = Path::new(IMAGES).join("release/wave.so");
    let _ = std::fs::remove_file(&wave);
    std::fs::create_dir_all(TARGET).expect("folder");
    let started = Instant::now();
    let first = shell(
        folder.path(),
        &format!("cargo ifunc new hello && ln -s '{TARGET}' hello/target && cd hello && cargo ifunc run"),
    )
    .succeeded();
    // Writes directly, because the harness captures `println!` of passing tests; `cargo xtask test` repeats
    // this line.
    let mut out = std::io::stdout();
    let _ = writeln!(
        out,
        "first run of a new project: {:.1} s, {before}",
        started.elapsed().as_secs_f64()
    );
    assert!(
        first.out.contains("source | add(300): the counter is 321"),
        "{}",
        first.out
    );

    let project = folder.path().join("hello");
    let manifest = project.join("ifuncs/Cargo.toml");
    let mut text = std::fs::read_to_string(&manifest).expect("manifest");
    text += "\n[[example]]\nname = \"greet\"\ncrate-type = [\"lib\"]\n";
    write(
        &project,
        &[
            ("ifuncs/Cargo.toml", &text),
            ("ifuncs/examples/greet.rs", EXAMPLE),
            ("greet.c", &c_ifunc("greet")),
            ("delta.json", "5\n"),
            ("delta.bin", "eight by"),
        ],
    );
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("folder");

    // `top` connects to the project's own target, with an address unique to this test.
    let address = format!("shm:help-{}", std::process::id());
    let target = Path::new(IMAGES).join("run/hello/target");
    let (_target, _out) = listening(
        Command::new(target).env("IFUNC_LIB_DIR", Path::new(IMAGES).join("release")),
        &address,
    );
    let mut run = 0;
    for name in subcommands() {
        let help = ifunc(&project, &[&name, "--help"]).succeeded().out;
        let examples = examples(&help);
        assert!(!examples.is_empty(), "{name} has no example");
        for example in examples {
            assert!(example.starts_with(&format!("cargo ifunc {name}")), "{example}");
            let place = if name == "new" { &elsewhere } else { &project };
            let endless = name == "top" && !example.contains("--once") && !example.contains("--count");
            let line = match &*example {
                _ if endless => format!("timeout --preserve-status --signal=INT 2 {example}"),
                // The images are needed, and those of other tests are beside them.
                "cargo ifunc clean" => "cargo ifunc clean --dry-run".to_owned(),
                example => example.to_owned(),
            };
            let ran = shell(place, &line.replace("shm:counter", &address));
            assert_eq!(ran.code, Some(0), "`{example}`:\n{}\n{}", ran.err, ran.out);
            run += 1;
        }
    }
    let _ = writeln!(out, "examples of --help that were run: {run}");
    assert!(wave.is_file());
    let tests = shell(&project, "cargo ifunc test").succeeded().out;
    assert!(tests.contains("test adds_to_the_counter ... ok"), "{tests}");
}

#[test]
fn lines_that_are_not_examples_are_reported() {
    let help = "Usage: x\n\nExamples:\n  cargo ifunc run hello -- one   # with words\n  cargo ifunc run\n";
    assert_eq!(
        examples(help),
        ["cargo ifunc run hello -- one", "cargo ifunc run"]
    );
    assert!(std::panic::catch_unwind(|| examples("Usage: x\n\nExamples:\n  ls\n")).is_err());
    assert!(std::panic::catch_unwind(|| examples("Usage: x\n")).is_err());
}
