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
        let no_ucx = folder.path().join("no-ucx");
        fs::create_dir(&no_ucx).unwrap();
        fs::write(no_ucx.join("libucp.so.0"), "no library").unwrap();
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
        // A runner process has no environment.
        command.arg(format!("-Wl,-rpath,{}", self.folder.path().display()));
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

const C99: &[&str] = &["-std=c99", "-D_GNU_SOURCE"];

/// Compiles the programs that need no UCX by the first of the words, with the other ones as options, and runs them by `command`; what they print.
/// `everything` gets the arguments.
fn run_all(
    built: &Built,
    compile: &[&str],
    command: impl Fn(&Path) -> Command,
    arguments: &[&str],
) -> String {
    let no_ucx = built.folder.path().join("no-ucx");
    let program = |name| built.program(compile[0], name, &compile[1..]);
    let [everything, nulls, statuses] = ["everything.c", "nulls.c", "statuses.c"].map(program);
    let mut said = run(command(&everything).args(arguments)) + &run(&mut command(&nulls));
    // The dynamic linker finds files there that are no libraries.
    let libraries = std::env::join_paths([no_ucx.as_path(), built.folder.path()]).unwrap();
    said += &run(&mut command(&statuses));
    said += &run(command(&statuses).arg("no-ucx").env("LD_LIBRARY_PATH", libraries));
    said + &run(command(&statuses).arg("no-randomness"))
}

#[test]
fn programs_in_c_use_every_function_and_meet_every_status() {
    let built = Built::new();
    let said = run_all(
        &built,
        &[&["gcc"], C99].concat(),
        |program| built.command(program),
        &[],
    );
    for name in ["everything", "nulls", "statuses"] {
        assert!(said.contains(&format!("{name} passed\n")), "{said}");
    }
    let source = |name: &str| fs::read_to_string(package().join("tests/c").join(name)).unwrap();
    let sources = ["check.h", "everything.c", "own_worker.c"].map(source).concat();
    let unused: Vec<_> = declared()
        .into_iter()
        .filter(|function| !sources.contains(&format!("{function}(")))
        .collect();
    assert_eq!(unused, [""; 0], "functions that no program calls but with null");

    let with_own_worker = lends_its_own_ucx(&built);
    let met: BTreeSet<_> = said
        .lines()
        .chain(with_own_worker.lines())
        .filter_map(|line| line.strip_prefix("met "))
        .collect();
    let header = header();
    let stated = header
        .lines()
        .filter_map(|line| line.trim().strip_prefix("IFUNC_STATUS_")?.split_once(" = "));
    let missed: Vec<_> = stated
        .map(|(name, _)| format!("IFUNC_STATUS_{name}"))
        .filter(|name| !met.contains(name.as_str()))
        .collect();
    assert_eq!(missed, [""; 0], "statuses that no program meets");
}

/// The functions of the header: the comment, the name, and the parameters.
fn documented(header: &str) -> Vec<(String, String, Vec<String>)> {
    let mut functions = Vec::new();
    for item in header.split("\n/**").skip(1) {
        let Some((comment, after)) = item.split_once("*/") else {
            continue;
        };
        let Some((before, parameters)) = after.split_once('(') else {
            continue;
        };
        let name = before.rsplit([' ', '*', '\n']).next().unwrap_or_default();
        if name.starts_with("ifunc_") && !before.contains("typedef") && !before.contains('{') {
            let (parameters, _) = parameters.split_once(");").unwrap();
            let parameters = parameters.split(',').map(|parameter| parameter.trim().to_owned());
            functions.push((comment.to_owned(), name.to_owned(), parameters.collect()));
        }
    }
    functions
}

/// The arguments of each call of a function in a source.
fn calls(source: &str, function: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (at, opening) in source.match_indices(&format!("{function}(")) {
        let (mut depth, mut arguments) = (1, vec![String::new()]);
        for letter in source[at + opening.len()..].chars() {
            match letter {
                '(' => depth += 1,
                ')' if depth == 1 => break,
                ')' => depth -= 1,
                _ => {}
            }
            match letter {
                ',' if depth == 1 => arguments.push(String::new()),
                letter => arguments.last_mut().unwrap().push(letter),
            }
        }
        all.push(
            arguments
                .iter()
                .map(|argument| argument.trim().to_owned())
                .collect(),
        );
    }
    all
}

#[test]
fn every_function_says_what_it_does_with_null_and_is_passed_it() {
    let source = fs::read_to_string(package().join("tests/c/nulls.c")).unwrap();
    let header = header();
    let functions = documented(&header);
    assert_eq!(functions.len(), declared().len());
    let mut missing = Vec::new();
    for (comment, function, parameters) in functions {
        let pointers = parameters
            .iter()
            .enumerate()
            .filter(|(_, parameter)| parameter.contains('*') || parameter.contains("_function "));
        let calls = calls(&source, &function);
        let mut takes_pointers = false;
        for (at, parameter) in pointers {
            takes_pointers = true;
            let is_null = |call: &Vec<String>| call.get(at).is_some_and(|argument| argument == "NULL");
            if !calls.iter().any(is_null) {
                missing.push(format!("{function}: no call passes null for `{parameter}`"));
            }
        }
        if takes_pointers && !comment.to_lowercase().contains("null") {
            missing.push(format!(
                "{function}: its comment does not say what it does with null"
            ));
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
#[ignore = "nightly: valgrind runs the programs fifty times slower"]
fn the_programs_leak_nothing_and_use_no_memory_that_they_must_not() {
    let built = Built::new();
    let valgrind = |program: &Path| {
        let mut command = built.command("valgrind");
        command.args([
            "--error-exitcode=99",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite,indirect",
        ]);
        // A larger change of the stack pointer is a change of the stack: injected code has one of its own.
        command.args(["--max-stackframe=65536", "--num-callers=30"]);
        command.arg(concat!(
            "--suppressions=",
            env!("CARGO_MANIFEST_DIR"),
            "/tests/c/valgrind.supp"
        ));
        command.arg(program);
        command
    };
    run_all(&built, &[&["gcc"], C99].concat(), valgrind, &["no-crash"]);
}

#[test]
#[ignore = "nightly: runs the programs twice more"]
fn the_programs_run_under_sanitizers_and_optimised_by_clang() {
    let built = Built::new();
    let command = |program: &Path| {
        let mut command = built.command(program);
        // Faults of ifuncs are the target's to contain.
        command.env(
            "ASAN_OPTIONS",
            "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:detect_leaks=0",
        );
        command.env("UBSAN_OPTIONS", "halt_on_error=1");
        command
    };
    let sanitized = [&["gcc"], C99, &["-fsanitize=address,undefined"]].concat();
    run_all(&built, &sanitized, command, &[]);
    run_all(&built, &[&["clang"], C99, &["-O2"]].concat(), command, &[]);
}

/// What a program on UCX of its own prints.
fn lends_its_own_ucx(built: &Built) -> String {
    if !Path::new("/usr/include/ucp/api/ucp.h").exists() {
        eprintln!("not tested: the headers of UCX are not here (libucx-dev)");
        return String::new();
    }
    let program = built.program("gcc", "own_worker.c", &["-std=gnu99", "-lucp", "-lucs"]);
    let runs = [&[][..], &["progress"]].map(|arguments| run(built.command(&program).args(arguments)));
    runs.concat()
}
