//! The linker's refusals, word for word: each `link/refused/NAME.{c,cc,s,rs}` is compiled, and the
//! message compared with `NAME.stderr`, or with `NAME.gcc.stderr` where compilers differ, or with `NAME.aarch64.stderr` or
//! `NAME.aarch64.gcc.stderr` where that architecture has other reasons. `REFUSED=overwrite` writes these files anew.
//!
//! C is compiled with every optimisation level as well, and without a PLT: it is refused for the same reasons.
//!
//! | directive | |
//! |---|---|
//! | `Flags: ..`, `Compilers: ..` | more flags for every compilation; these compilers only |
//! | `Configs: ..` | these optimisation levels only |
//! | `Machines: aarch64` | for this architecture only |
//! | `Object: file`, `Neighbour: file`, `Archive: files`, `Libgcc: yes` | more inputs |
//! | `Declared: a b` | nothing else may be imported |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::common::emulated::emulator;
use crate::common::sources::{
    Compiler, FOLDER, Machine, Object, Source, compilers, compilers_for, folder, not_compared, package, run,
};
use ifunc_link::{Imports, Input, Linker, Reason, Request, Role, Rule};

const LEVELS: [&[&str]; 8] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-Os"],
    &["-Og"],
    &["-O0", "-fno-plt"],
    &["-O2", "-fno-plt"],
];
/// What the messages were written down with.
const VERSIONS: [(&str, &str); 2] = [("gcc", "12"), ("clang", "14")];

fn refused() -> PathBuf {
    folder().join("refused")
}

/// The sources of a language.
fn sources(extension: &str) -> Vec<Source> {
    let mut files: Vec<String> = std::fs::read_dir(refused())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| Path::new(name).extension().is_some_and(|e| e == extension))
        .map(|name| format!("refused/{name}"))
        .collect();
    files.sort();
    files.iter().map(|file| Source::read(file)).collect()
}

/// Links what is to be refused. A panic in here is one of the linker.
fn refusal(source: &Source, objects: &[Object]) -> Result<String, String> {
    let inputs: Vec<_> = objects
        .iter()
        .map(|(name, data, role)| Input {
            name,
            data,
            role: *role,
        })
        .collect();
    let declared = source.words("Declared");
    let imports = match declared {
        Some(names) => Imports::Declared(names.into_iter().map(|name| (name, 0)).collect()),
        None => Imports::Any,
    };
    let linker = match Linker::open(&inputs) {
        Ok(linker) => linker,
        Err(error) => return Ok(error.to_string()),
    };
    match linker.link(&Request::new(&source.name, imports)) {
        Ok(image) => Err(format!("it was linked: {} bytes", image.len())),
        Err(error) => Ok(error.to_string()),
    }
}

/// The reasons of a message, without what depends on the instructions that a compiler chose.
fn reasons(message: &str) -> BTreeSet<&str> {
    let lines = message.lines().filter(|line| {
        let indent = line.len() - line.trim_start().len();
        indent == 2
    });
    let heads: BTreeSet<&str> = lines
        .map(|line| line.split_once(" (").map_or(line, |(head, _)| head))
        .collect();
    match heads.is_empty() {
        true => message.lines().take(1).collect(),
        false => heads,
    }
}

/// The messages that are written down, and what was found to differ.
struct Book {
    differences: Mutex<Vec<String>>,
}

impl Book {
    /// Compares the messages of a source, by compiler.
    fn compare(&self, name: &str, machine: Machine, found: &BTreeMap<&str, String>) {
        let of_machine = match machine {
            Machine::X86_64 => "",
            Machine::AArch64 => ".aarch64",
        };
        let path = |of: &str| refused().join(format!("{name}{of_machine}{of}.stderr"));
        if std::env::var("REFUSED").as_deref() == Ok("overwrite") {
            let texts: BTreeSet<&String> = found.values().collect();
            for (by, text) in found {
                let own = path(&format!(".{by}"));
                let shared = self.expected(name, Machine::X86_64, by);
                if machine != Machine::X86_64 && shared.is_some_and(|shared| shared.trim_end() == text) {
                    let _ = std::fs::remove_file(own);
                    continue;
                }
                match texts.len() {
                    1 => {
                        let _ = std::fs::remove_file(own);
                        std::fs::write(path(""), format!("{text}\n")).unwrap();
                    }
                    _ => {
                        let _ = std::fs::remove_file(path(""));
                        std::fs::write(own, format!("{text}\n")).unwrap();
                    }
                }
            }
            return;
        }
        for (by, text) in found {
            let Some(expected) = self.expected(name, machine, by) else {
                self.differ(name, by, "nothing is written down", text);
                continue;
            };
            if same_version(machine, by) && expected.trim_end() != text {
                self.differ(
                    name,
                    by,
                    &format!("expected:\n{}\nfound:", expected.trim_end()),
                    text,
                );
            }
            if reasons(&expected) != reasons(text) {
                self.differ(name, by, "other reasons than expected", text);
            }
        }
    }

    fn expected(&self, name: &str, machine: Machine, by: &str) -> Option<String> {
        let of_machine: &[&str] = match machine {
            Machine::X86_64 => &[""],
            Machine::AArch64 => &[".aarch64", ""],
        };
        let files = of_machine
            .iter()
            .flat_map(|of| [format!("{name}{of}.{by}.stderr"), format!("{name}{of}.stderr")]);
        let mut texts = files.filter_map(|file| std::fs::read_to_string(refused().join(file)).ok());
        texts.next()
    }

    fn differ(&self, name: &str, by: &str, what: &str, text: &str) {
        let difference = format!("\n--- {name} by {by}: {what}\n{text}\n");
        self.differences.lock().unwrap().push(difference);
    }

    /// Looks at each of `items`, on all cores.
    fn with<T: Sync>(items: &[T], look: impl Fn(&Self, &T) + Sync) {
        assert!(!items.is_empty());
        let book = Self {
            differences: Mutex::default(),
        };
        let next = Mutex::new(items.iter());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let Some(item) = next.lock().unwrap().next() else {
                            return;
                        };
                        look(&book, item);
                    }
                });
            }
        });
        let differences = book.differences.into_inner().unwrap();
        assert!(
            differences.is_empty(),
            "{} differences (`REFUSED=overwrite` accepts them)\n{}",
            differences.len(),
            differences.concat()
        );
    }
}

/// Whether messages may be compared word by word: other versions of a compiler write other code.
fn same_version(machine: Machine, by: &str) -> bool {
    VERSIONS.iter().all(|(compiler, version)| {
        by != *compiler || {
            let name = compiler;
            let output = Compiler { name, machine }
                .command("c")
                .arg("-dumpversion")
                .output();
            let output = output.unwrap();
            String::from_utf8_lossy(&output.stdout).trim().split('.').next() == Some(version)
        }
    })
}

/// The message of one compilation.
fn message(source: &Source, compiler: Compiler, flags: &[&str]) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let mut flags = flags.to_vec();
    flags.extend(source.words("Flags").unwrap_or_default());
    refusal(source, &source.objects(compiler, &flags, dir.path()))
}

/// Compares what the compilers' objects are refused for.
fn compare(book: &Book, source: &Source, compilers: &[Compiler]) {
    let mut found = BTreeMap::new();
    for &compiler in compilers.iter().filter(|&&cc| source.is_for(cc)) {
        match message(source, compiler, &["-O1", "-g1"]) {
            Ok(message) => {
                found.insert(compiler.name, message);
            }
            Err(linked) => book.differ(&source.name, compiler.name, &linked, ""),
        }
    }
    if !compilers.iter().any(|&cc| source.is_for(cc)) {
        not_compared(&format!("{}: none of its compilers is there", source.file));
    }
    book.compare(&source.name, compilers[0].machine, &found);
}

#[test]
fn c() {
    compare_c("c", compilers());
}

/// Sources by this extension, with compilers of one architecture.
fn compare_c(extension: &str, compilers: &[Compiler]) {
    let mut sources = sources(extension);
    sources.retain(|source| source.is_for_machine(compilers[0].machine));
    Book::with(&sources, |book, source| compare(book, source, compilers));
}

#[test]
fn aarch64() {
    if emulator().is_none() {
        return;
    }
    let compilers = compilers_for(Machine::AArch64);
    compare_c("c", compilers);
    compare_c("s", &compilers[..1]);
    let with_cxx: Vec<Compiler> = compilers.iter().copied().filter(|cc| cc.has_cxx()).collect();
    match with_cxx.is_empty() {
        true => not_compared("C++ for AArch64: its compilers are not there"),
        false => compare_c("cc", &with_cxx),
    }
}

/// The optimisation level does not change what is refused.
#[test]
#[ignore = "nightly: most reasons are those of the optimised sources"]
fn c_without_optimisation() {
    at_levels(compilers(), &LEVELS[..1]);
}

#[test]
#[ignore = "nightly: every level compiles for half a minute"]
fn c_at_every_level() {
    at_levels(compilers(), &LEVELS);
    if emulator().is_some() {
        at_levels(compilers_for(Machine::AArch64), &LEVELS);
    }
}

fn at_levels(compilers: &[Compiler], among: &[&[&str]]) {
    Book::with(&sources("c"), |book, source| {
        let mut levels = source.configs(&LEVELS);
        assert!(!levels.is_empty());
        levels.retain(|level| among.contains(level));
        for &compiler in compilers.iter().filter(|&&cc| source.is_for(cc)) {
            let expected = book.expected(&source.name, compiler.machine, compiler.name);
            let expected = expected.unwrap_or_default();
            for &flags in &levels {
                let by = format!("{} {}", compiler.name, flags.join(" "));
                match message(source, compiler, flags) {
                    Ok(found) if reasons(&found) == reasons(&expected) => {}
                    Ok(found) => book.differ(&source.name, &by, "other reasons than expected", &found),
                    Err(linked) => book.differ(&source.name, &by, &linked, ""),
                }
            }
        }
    });
}

#[test]
fn cxx() {
    let there: Vec<Compiler> = compilers().iter().copied().filter(|cc| cc.has_cxx()).collect();
    assert!(!there.is_empty(), "there is no C++ compiler");
    compare_c("cc", &there);
}

#[test]
fn assembly() {
    // All assemblers write the same objects.
    compare_c("s", &compilers()[..1]);
}

#[test]
fn rust() {
    Book::with(&sources("rs"), |book, source| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("object.o");
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        run(Command::new(rustc)
            .current_dir(package())
            .args(["--edition=2024", "--crate-type=lib", "--emit=obj", "-Awarnings"])
            .args(["-Cpanic=abort", "-Copt-level=1", "-Cdebuginfo=line-tables-only"])
            .args([
                "-Ccodegen-units=1",
                "-Cmetadata=ifunc",
                "-Csymbol-mangling-version=v0",
            ])
            .args(source.words("Flags").unwrap_or_default())
            .arg("-o")
            .arg(&out)
            .arg(Path::new(FOLDER).join(&source.file)));
        let object = (
            format!("{}.o", source.name),
            std::fs::read(out).unwrap(),
            Role::User,
        );
        match refusal(source, &[object]) {
            Ok(message) => book.compare(
                &source.name,
                Machine::X86_64,
                &BTreeMap::from([("rustc", steady(&message))]),
            ),
            Err(linked) => book.differ(&source.name, "rustc", &linked, ""),
        }
    });
}

/// Without what changes with the compiler's version: where the sources of its libraries lie.
fn steady(message: &str) -> String {
    let mut out = String::new();
    for (index, line) in message.lines().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let mut parts = line.split("/rustc/");
        out.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let path = part.split_once('/').map_or(part, |(_, path)| path);
            let (file, rest) = path.split_once(':').unwrap_or((path, ""));
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            write!(out, "/rustc/HASH/{file}:LINE{rest}").unwrap();
        }
    }
    out
}

/// Inputs that no compiler makes, or that are no objects at all.
fn odd_inputs() -> Vec<(&'static str, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    let object = |name: &str| {
        let path = dir.path().join(format!("{name}.o"));
        compilers()[0].compile(&format!("{name}.c"), &["-O1"], &path);
        std::fs::read(path).unwrap()
    };
    let plain = object("arith");
    let changed = |at: usize, bytes: &[u8]| {
        let mut object = plain.clone();
        object[at..at + bytes.len()].copy_from_slice(bytes);
        object
    };
    let library = dir.path().join("library.so");
    run(compilers()[0]
        .command("c")
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&library)
        .arg(dir.path().join("arith.o")));
    let thin = dir.path().join("thin.a");
    run(Command::new("ar")
        .current_dir(dir.path())
        .args(["rcsT", "thin.a", "arith.o"]));
    let table = u64::from_le_bytes(plain[40..48].try_into().unwrap()) as usize;
    vec![
        ("input_empty", Vec::new()),
        ("input_text", b"int main(void) { return 0; }\n".to_vec()),
        ("input_cut_off", plain[..plain.len() / 2].to_vec()),
        ("input_header_alone", plain[..64].to_vec()),
        ("input_library", std::fs::read(library).unwrap()),
        ("input_thin_archive", std::fs::read(thin).unwrap()),
        (
            "input_broken_archive",
            b"!<arch>\nthis is no header of a member\n".to_vec(),
        ),
        ("input_other_machine", changed(18, &243_u16.to_le_bytes())),
        ("input_32_bits", changed(4, &[1])),
        ("input_big_endian", changed(5, &[2])),
        ("input_bitcode", b"BC\xc0\xde\x35\x14\0\0".to_vec()),
        ("input_mach_o", {
            let mut file = vec![0xcf, 0xfa, 0xed, 0xfe, 7, 0, 0, 1];
            file.resize(64, 0);
            file
        }),
        ("input_coff", {
            let mut file = vec![0x64, 0x86, 3, 0];
            file.resize(64, 0);
            file
        }),
        ("input_name_not_utf8", {
            let name = plain.windows(11).position(|name| name == b"\0arith_main");
            changed(name.unwrap() + 1, &[0xff])
        }),
        (
            "input_odd_alignment",
            changed(table + 64 + 48, &3_u64.to_le_bytes()),
        ),
    ]
}

#[test]
fn no_objects() {
    Book::with(&odd_inputs(), |book, (name, data)| {
        let input = Input {
            name: "input.o",
            data,
            role: Role::User,
        };
        let error = Linker::open(&[input]).err().map(|e| e.to_string());
        match error {
            Some(error) => book.compare(name, Machine::X86_64, &BTreeMap::from([("any", error)])),
            None => book.differ(name, "any", "it was read", ""),
        }
    });
}

/// The message about a thread-local variable of an object that is compiled in `cwd` from `file`.
fn message_of(compiler: Compiler, cwd: &Path, file: &Path, flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("object.o");
    run(compiler
        .command("c")
        .current_dir(cwd)
        .args(["-c", "-O1", "-fPIC", "-ffunction-sections", "-w"])
        .args(flags)
        .arg("-o")
        .arg(&out)
        .arg(file));
    let object = ("tls.o".to_owned(), std::fs::read(out).unwrap(), Role::User);
    refusal(&Source::read("refused/tls.c"), &[object]).unwrap()
}

#[test]
fn lines_come_from_every_kind_of_debug_information() {
    let (cwd, file) = (folder(), Path::new("refused/tls.c"));
    for &compiler in compilers() {
        for flags in [
            &["-g1"][..],
            &["-g"],
            &["-g3", "-gdwarf-4"],
            &["-g", "-gdwarf-5"],
            &["-g", "-gdwarf-4", "-fdebug-types-section"],
            &["-g1", "-fno-function-sections"],
            &["-g", "-fasynchronous-unwind-tables"],
        ] {
            let message = message_of(compiler, &cwd, file, flags);
            let by = "referenced by `bump` in tls.o at refused/tls.c:3\n";
            assert!(message.contains(by), "{} {flags:?}: {message}", compiler.name);
        }
        // Without, or with one that is not read: a message without lines.
        for flags in [&[][..], &["-g0"], &["-g", "-gz"]] {
            let message = message_of(compiler, &cwd, file, flags);
            let by = "referenced by `bump` in tls.o\n";
            assert!(message.contains(by), "{} {flags:?}: {message}", compiler.name);
        }
        // As the compiler was called: from another folder, by the whole path.
        let elsewhere = tempfile::tempdir().unwrap();
        let whole = refused().join("tls.c");
        let message = message_of(compiler, elsewhere.path(), &whole, &["-g1"]);
        let by = format!("in tls.o at {}:3\n", whole.display());
        assert!(message.contains(&by), "{}: {message}", compiler.name);
    }
}

/// A message that nothing is compared with any more is none.
#[test]
fn every_message_has_a_source() {
    let odd: BTreeSet<&str> = odd_inputs().iter().map(|(name, _)| *name).collect();
    let mut names: BTreeSet<String> = odd.into_iter().map(str::to_owned).collect();
    for extension in ["c", "cc", "s", "rs"] {
        for source in sources(extension) {
            assert!(names.insert(source.name.clone()), "two sources `{}`", source.name);
        }
    }
    assert!(names.len() >= 40, "{} sources", names.len());
    for entry in std::fs::read_dir(refused()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        if file.ends_with(".stderr") {
            let name = file.split('.').next().unwrap();
            assert!(names.contains(name), "`{file}` belongs to no source");
        }
    }
}

/// A source that is refused by each rule; `entries.rs` has `SameEntry` and `TooManyEntries`.
const OF_RULES: [(Rule, &str); 21] = [
    (Rule::NoEntry, "no_main"),
    (Rule::Duplicate, "duplicate"),
    (Rule::ThreadLocal, "tls"),
    (Rule::Constructor, "constructor"),
    (Rule::ExecutableStack, "executable_stack"),
    (Rule::GnuIfunc, "gnu_ifunc"),
    (Rule::TextRelocation, "no_pic"),
    (Rule::DirectExternal, "pie"),
    (Rule::GotRelative, "reloc_got64"),
    (Rule::UnsupportedRelocation, "reloc_size64"),
    (Rule::Hidden, "hidden"),
    (Rule::Unwinding, "cxx_exception"),
    (Rule::Undeclared, "undeclared"),
    (Rule::LinkerSymbol, "linker_symbols"),
    (Rule::SymbolName, "symbol_name"),
    (Rule::SymbolVersion, "symbol_version"),
    (Rule::AbsoluteSymbol, "absolute"),
    (Rule::Section, "writable_code"),
    (Rule::Alignment, "alignment"),
    (Rule::TooLarge, "too_large"),
    (Rule::Malformed, "merge_beside"),
];

#[test]
fn every_rule_refuses_a_source() {
    for (rule, name) in OF_RULES {
        let path = refused().join(format!("{name}.stderr"));
        let message = std::fs::read_to_string(path).unwrap();
        let reason = Reason {
            rule,
            symbol: String::new(),
            detail: String::new(),
            referenced_by: Vec::new(),
            help: String::new(),
        };
        let reason = reason.to_string();
        let title = reason.split("``").next().unwrap();
        let mut lines = message.lines().skip_while(|line| !line.trim().starts_with(title));
        assert!(
            lines.next().is_some(),
            "`{name}` is not refused by {rule:?}:\n{message}"
        );
        assert!(
            lines.any(|line| line.trim().starts_with("help: ")),
            "{rule:?} has no help:\n{message}"
        );
    }
}
