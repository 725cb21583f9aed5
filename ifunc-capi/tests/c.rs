//! The C interface as C programs see it: its header, its symbols, and a program that uses all of it.

#[path = "../generate/src/interface.rs"]
mod interface;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ifunc_build::{COptions, Quiet, build_c};
use object::{Object, ObjectSymbol};

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    fs::read_to_string(package().join("include/ifunc_rt.h")).unwrap()
}

/// The shared library, which cargo builds beside the tests.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.with_file_name("libifunc_capi.so")
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = header();
    let code = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/', '#', '\t']));
    code.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        (name.starts_with("ifunc_") && !line.starts_with("typedef")).then(|| name.to_owned())
    })
    .collect()
}

/// Runs a command, which must succeed.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

#[test]
fn the_header_is_that_of_the_sources() {
    let mark = interface::mark(&interface::digest(package()));
    assert!(
        header().ends_with(&mark),
        "include/ifunc_rt.h is stale: the sources have another interface\nhelp: cargo xtask capi-header"
    );
}

#[test]
fn the_header_compiles_as_c_and_as_cpp_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let header = package().join("include");
    for (compiler, language, standard) in [
        ("gcc", "c", "c99"),
        ("g++", "cpp", "c++11"),
        ("clang", "c", "c99"),
        ("clang++", "cpp", "c++11"),
    ] {
        let source = folder.path().join(format!("includes.{language}"));
        // The header of authors of ifuncs is of C11.
        fs::write(
            &source,
            "#include <ifunc_rt.h>\n#include <ifunc_rt.h>\nint here;\n",
        )
        .unwrap();
        let mut command = Command::new(compiler);
        command.args(WARNINGS).arg(format!("-std={standard}"));
        run(command.arg("-fsyntax-only").arg("-I").arg(&header).arg(source));
    }
}

#[test]
fn it_and_the_header_of_ifuncs_may_be_included_together() {
    let folder = tempfile::tempdir().unwrap();
    for (compiler, file, standard) in [("gcc", "both.c", "c11"), ("g++", "both.cpp", "c++11")] {
        let source = folder.path().join(file);
        fs::write(&source, "#include <ifunc_rt.h>\n#include <ifunc.h>\nint here;\n").unwrap();
        let mut command = Command::new(compiler);
        command
            .arg("-Wall")
            .arg("-Werror")
            .arg(format!("-std={standard}"));
        command.arg("-I").arg(package().join("include"));
        command.arg("-I").arg(package().join("../ifunc-build/include"));
        run(command.arg("-fsyntax-only").arg(source));
    }
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let bytes = fs::read(library()).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let exported: BTreeSet<String> = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .map(|symbol| symbol.name().unwrap().to_owned())
        .collect();
    let declared = declared();
    assert!(declared.len() > 100, "{declared:?}");
    assert_eq!(exported, declared);
}

/// Programs and the ifuncs that they send, built from `tests/c`.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = COptions {
            target_dir: Some(folder.path().to_owned()),
            ..COptions::default()
        };
        for file in ["ifuncs.c", "unresolved.c"] {
            build_c(&[package().join("tests/c").join(file)], &options, &mut Quiet)
                .unwrap_or_else(|error| panic!("{error}"));
        }
        for name in ["libifunc_rt.so", "libifunc_rt.so.0"] {
            std::os::unix::fs::symlink(library(), folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    /// Compiles a program of `tests/c`.
    fn program(&self, compiler: &str, name: &str, options: &[&str]) -> PathBuf {
        let program = self.folder.path().join(Path::new(name).file_stem().unwrap());
        let mut command = Command::new(compiler);
        command.args(WARNINGS).args(["-g", "-pthread"]);
        command.arg("-I").arg(package().join("include"));
        command
            .arg(package().join("tests/c").join(name))
            .arg("-o")
            .arg(&program);
        // Libraries come after what uses them.
        command.args(options).arg("-L").arg(self.folder.path());
        run(command.arg("-lifunc_rt"));
        program
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("IFUNC_LIB_DIR", self.folder.path().join("release"))
            .env_remove("UCX_IFUNC_LIB_DIR");
        command
    }
}

#[test]
fn a_program_in_c_uses_every_function_and_meets_every_error() {
    let built = Built::new();
    let program = built.program("gcc", "everything.c", &["-std=c99", "-D_GNU_SOURCE"]);
    let said = run(&mut built.command(&program));
    assert!(said.ends_with("everything passed\n"), "{said}");
    let source = fs::read_to_string(package().join("tests/c/everything.c")).unwrap();
    let unused: Vec<_> = declared()
        .into_iter()
        .filter(|function| !source.contains(&format!("{function}(")))
        .collect();
    assert_eq!(unused, [""; 0], "functions that the program does not call");
}

#[test]
#[ignore = "nightly: valgrind runs the program fifty times slower"]
fn the_program_leaks_nothing_and_uses_no_memory_that_it_must_not() {
    let built = Built::new();
    let program = built.program("gcc", "everything.c", &["-std=c99", "-D_GNU_SOURCE"]);
    let mut command = built.command("valgrind");
    command.args([
        "--error-exitcode=99",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite,indirect",
    ]);
    // A larger change of the stack pointer is a change of the stack: injected code has one of its own.
    command.args(["--max-stackframe=65536", "--num-callers=30"]);
    let said = run(command.arg(&program).arg("no-crash"));
    assert!(said.ends_with("everything passed\n"), "{said}");
}

#[test]
#[ignore = "nightly: runs the program twice more"]
fn the_program_runs_under_sanitizers_and_optimised_by_clang() {
    let built = Built::new();
    for (compiler, options) in [
        (
            "gcc",
            &["-std=c99", "-D_GNU_SOURCE", "-fsanitize=address,undefined"][..],
        ),
        ("clang", &["-std=c99", "-D_GNU_SOURCE", "-O2"]),
    ] {
        let program = built.program(compiler, "everything.c", options);
        let mut command = built.command(&program);
        // Faults of ifuncs are the target's to contain.
        command.env(
            "ASAN_OPTIONS",
            "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:detect_leaks=0",
        );
        command.env("UBSAN_OPTIONS", "halt_on_error=1");
        let said = run(&mut command);
        assert!(said.ends_with("everything passed\n"), "{compiler}: {said}");
    }
}

#[test]
fn a_program_lends_its_own_ucx() {
    if !Path::new("/usr/include/ucp/api/ucp.h").exists() {
        eprintln!("not tested: the headers of UCX are not here (libucx-dev)");
        return;
    }
    let built = Built::new();
    let program = built.program("gcc", "own_worker.c", &["-std=gnu99", "-lucp", "-lucs"]);
    for arguments in [&[][..], &["progress"]] {
        let said = run(built.command(&program).args(arguments));
        assert!(said.ends_with("own worker passed\n"), "{said}");
    }
}
