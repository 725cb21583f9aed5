//! Sources with directives in their first lines, and the compilers that turn them into objects.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Once, OnceLock};

use ifunc_link::Role;

const ALWAYS: [&str; 6] = [
    "-fPIC",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-asynchronous-unwind-tables",
    "-w",
    "-U_FORTIFY_SOURCE",
];

/// The folder of the sources, below the package's.
pub const FOLDER: &str = "tests/link";

pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn folder() -> PathBuf {
    package().join(FOLDER)
}

/// An architecture that sources are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    X86_64,
    AArch64,
}

impl Machine {
    /// Its name in directives.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86-64",
            Self::AArch64 => "aarch64",
        }
    }

    /// How the names of its relocations begin.
    pub const fn relocations(self) -> &'static str {
        match self {
            Self::X86_64 => "R_X86_64_",
            Self::AArch64 => "R_AARCH64_",
        }
    }
}

/// What its compilers do on their own that an image cannot have. GCC calls functions of its library for atomic operations.
const OF_AARCH64: [&str; 1] = ["-mno-outline-atomics"];

/// A C compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiler {
    pub name: &'static str,
    pub machine: Machine,
}

/// The directives of a source that is linked; `link.rs` explains them.
const OF_LINKED: [&str; 20] = [
    "Archive",
    "Compilers",
    "Configs",
    "Covers",
    "ExpectImport",
    "ExpectImportRelocations",
    "ExpectImports",
    "ExpectFunctions",
    "ExpectUnknown",
    "ExpectRelocations",
    "ExpectRelocationsAtLeast",
    "ExpectRw",
    "ExpectSlot",
    "ExpectWeak",
    "Flags",
    "Libgcc",
    "Machines",
    "MaxBytes",
    "Object",
    "SetsFloatControl",
];
/// The directives of a source that is refused; `refused.rs` explains them.
const OF_REFUSED: [&str; 9] = [
    "Archive",
    "Compilers",
    "Configs",
    "Declared",
    "Flags",
    "Libgcc",
    "Machines",
    "Neighbour",
    "Object",
];
/// There may be several of these.
const REPEATED: [&str; 4] = ["Covers", "ExpectImport", "Neighbour", "Object"];

const NAMES: [&str; 2] = ["gcc", "clang"];

pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Prints what a test did not compare; the test harness does not capture it.
pub fn not_compared(what: &str) {
    let _ = writeln!(std::io::stderr(), "NOT COMPARED: {what}");
}

/// The compilers of this machine; one at least.
pub fn compilers() -> &'static [Compiler] {
    let found = compilers_for(Machine::X86_64);
    assert!(!found.is_empty(), "neither gcc nor clang is there");
    static PRINTED: Once = Once::new();
    PRINTED.call_once(|| {
        for name in NAMES
            .iter()
            .filter(|name| !found.iter().any(|cc| cc.name == **name))
        {
            not_compared(&format!("{name} is not there"));
        }
    });
    found
}

/// The compilers for an architecture, as far as they are there. Clang compiles for AArch64 with the headers of gcc's package.
pub fn compilers_for(machine: Machine) -> &'static [Compiler] {
    static FOUND: [OnceLock<Vec<Compiler>>; 2] = [OnceLock::new(), OnceLock::new()];
    FOUND[machine as usize].get_or_init(|| {
        let all = NAMES.map(|name| Compiler { name, machine });
        let found: Vec<Compiler> = all.into_iter().filter(|cc| is_there(cc.program("c"))).collect();
        match found.first() {
            Some(first) if first.name == "gcc" || machine == Machine::X86_64 => found,
            _ => Vec::new(),
        }
    })
}

pub fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Compiler {
    /// The program for files of this extension: `c` or `cc`.
    fn program(self, extension: &str) -> &'static str {
        match (self.name, self.machine, extension == "cc") {
            ("gcc", Machine::X86_64, false) => "gcc",
            ("gcc", Machine::X86_64, true) => "g++",
            ("gcc", Machine::AArch64, false) => "aarch64-linux-gnu-gcc",
            ("gcc", Machine::AArch64, true) => "aarch64-linux-gnu-g++",
            (_, _, false) => "clang",
            (_, _, true) => "clang++",
        }
    }

    /// A command for files of this extension.
    pub fn command(self, extension: &str) -> Command {
        let mut command = Command::new(self.program(extension));
        if self.name == "clang" && self.machine == Machine::AArch64 {
            command.arg("--target=aarch64-linux-gnu");
        }
        command
    }

    /// Whether it has a C++ compiler.
    pub fn has_cxx(self) -> bool {
        is_there(self.program("cc"))
    }

    /// Compiles a file of [`FOLDER`], in the package's folder, so that debug information says `tests/link/NAME.c`.
    pub fn compile(self, file: &str, flags: &[&str], out: &Path) {
        let extension = if file.ends_with(".cc") { "cc" } else { "c" };
        run(self
            .command(extension)
            .current_dir(package())
            .arg("-c")
            .args(ALWAYS)
            .args(match self.machine {
                Machine::X86_64 => &[][..],
                Machine::AArch64 => &OF_AARCH64,
            })
            .args(flags)
            .arg("-o")
            .arg(out)
            .arg(Path::new(FOLDER).join(file)));
    }
}

/// A source and its directives.
pub struct Source {
    /// The name of its ifunc: the file's.
    pub name: String,
    /// Below [`FOLDER`].
    pub file: String,
    text: String,
}

/// An input of a link, by its name in messages.
pub type Object = (String, Vec<u8>, Role);

impl Source {
    pub fn read(file: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(file)).unwrap();
        let name = Path::new(file).file_stem().unwrap().to_str().unwrap();
        let source = Self {
            name: name.into(),
            file: file.into(),
            text,
        };
        let known = match file.starts_with("refused/") {
            true => &OF_REFUSED[..],
            false => &OF_LINKED,
        };
        source
            .check(known)
            .unwrap_or_else(|wrong| panic!("{file}: {wrong}"));
        source
    }

    /// What is wrong with the directives, if anything: a misspelt directive would be ignored.
    fn check(&self, known: &[&str]) -> Result<(), String> {
        let mut seen = Vec::new();
        for line in self.directives() {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("`{line}`: no `:`"))?;
            if !known.contains(&name) {
                return Err(format!("`{name}` is none of {known:?}"));
            }
            if seen.contains(&name) && !REPEATED.contains(&name) {
                return Err(format!("`{name}` is there twice"));
            }
            seen.push(name);
            let value = value.trim();
            let bad = match name {
                "Compilers" => value.is_empty() || !value.split(' ').all(|one| NAMES.contains(&one)),
                "Machines" | "SetsFloatControl" => {
                    value.is_empty() || !value.split(' ').all(|one| ["x86-64", "aarch64"].contains(&one))
                }
                "Libgcc" | "ExpectSlot" | "ExpectRw" | "ExpectImportRelocations" => {
                    !matches!(value, "yes" | "no")
                }
                "ExpectImports" | "Declared" => false,
                _ => value.is_empty(),
            };
            if bad {
                return Err(format!("`{name}: {value}` has no meaning"));
            }
        }
        Ok(())
    }

    /// All directives of the source.
    fn directives(&self) -> impl Iterator<Item = &str> {
        let lines = self.text.lines();
        let values = lines.filter_map(|line| line.strip_prefix("//#").or_else(|| line.strip_prefix("##")));
        values.filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()))
    }

    pub fn all(&self, directive: &str) -> Vec<&str> {
        let values = self
            .directives()
            .filter_map(|line| line.strip_prefix(directive)?.strip_prefix(':'));
        values.map(str::trim).collect()
    }

    /// The configurations that `Configs:` chooses, or all.
    pub fn configs<'c>(&self, all: &[&'c [&'c str]]) -> Vec<&'c [&'c str]> {
        let Some(only) = self.words("Configs") else {
            return all.to_vec();
        };
        let chosen = only.iter().map(|word| {
            let found = all.iter().find(|config| **config == [*word]);
            *found.unwrap_or_else(|| panic!("{}: no configuration is `{word}` alone", self.file))
        });
        chosen.collect()
    }

    pub fn words(&self, directive: &str) -> Option<Vec<&str>> {
        self.all(directive)
            .first()
            .map(|line| line.split_whitespace().collect())
    }

    pub fn yes(&self, directive: &str) -> Option<bool> {
        self.all(directive).first().map(|word| *word == "yes")
    }

    pub fn number(&self, directive: &str) -> Option<usize> {
        self.all(directive).first().map(|word| word.parse().unwrap())
    }

    /// Whether `Compilers:` has the compiler, or is not there, and `Machines:` its architecture.
    pub fn is_for(&self, compiler: Compiler) -> bool {
        self.words("Compilers")
            .is_none_or(|only| only.contains(&compiler.name))
            && self.is_for_machine(compiler.machine)
    }

    /// Whether `Machines:` has the architecture, or is not there.
    pub fn is_for_machine(&self, machine: Machine) -> bool {
        self.words("Machines")
            .is_none_or(|only| only.contains(&machine.name()))
    }

    /// Compiles the source and its other inputs.
    pub fn objects(&self, compiler: Compiler, flags: &[&str], dir: &Path) -> Vec<Object> {
        let mut objects = Vec::new();
        let mut add = |file: &str, shown: String, role| {
            let path = dir.join("object.o");
            compiler.compile(file, flags, &path);
            objects.push((shown, std::fs::read(path).unwrap(), role));
        };
        let shown = |file: &str| format!("{}.o", Path::new(file).file_stem().unwrap().to_str().unwrap());
        add(&self.file, shown(&self.file), Role::User);
        for file in self.all("Object") {
            add(file, shown(file), Role::User);
        }
        for file in self.all("Neighbour") {
            add(file, shown(file), Role::Neighbour);
        }
        if let Some(files) = self.words("Archive") {
            objects.push((
                "archive.a".into(),
                archive(compiler, &files, flags, dir),
                Role::User,
            ));
        }
        if self.yes("Libgcc") == Some(true) {
            objects.push(("libgcc.a".into(), support_library(compiler), Role::Support));
        }
        objects
    }
}

fn archive(compiler: Compiler, files: &[&str], flags: &[&str], dir: &Path) -> Vec<u8> {
    let path = dir.join("archive.a");
    let _ = std::fs::remove_file(&path);
    let mut command = Command::new("ar");
    command.arg("rcs").arg(&path);
    for file in files {
        let member = dir.join(Path::new(file).with_extension("o").file_name().unwrap());
        compiler.compile(file, flags, &member);
        command.arg(member);
    }
    run(&mut command);
    std::fs::read(path).unwrap()
}

fn support_library(compiler: Compiler) -> Vec<u8> {
    let output = compiler
        .command("c")
        .arg("-print-libgcc-file-name")
        .output()
        .unwrap();
    let path = String::from_utf8(output.stdout).unwrap();
    std::fs::read(path.trim()).unwrap()
}

#[test]
fn unknown_directives_are_errors() {
    let wrong = |text: &str| {
        let source = Source {
            name: "x".into(),
            file: "x.c".into(),
            text: text.into(),
        };
        source.check(&OF_LINKED).err()
    };
    assert_eq!(wrong("//#ExpectImports:\n//#Covers: a\n//#Covers: b\n"), None);
    for (text, expected) in [
        ("//#ExpectImprots: a", "`ExpectImprots` is none of"),
        ("##Declared: a", "`Declared` is none of"),
        ("//#Flags -O2", "no `:`"),
        ("//#Compilers: gc", "has no meaning"),
        ("//#ExpectSlot: true", "has no meaning"),
        ("//#MaxBytes:", "has no meaning"),
        ("//#MaxBytes: 1\n//#MaxBytes: 2", "is there twice"),
    ] {
        let wrong = wrong(text).unwrap_or_default();
        assert!(wrong.contains(expected), "{text}: {wrong}");
    }
}
