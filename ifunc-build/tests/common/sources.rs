//! Sources that say in their first lines what is to come of them, and the compilers that turn them into objects.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ifunc_build::link::Role;

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

/// A C compiler; its C++ compiler has another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiler {
    pub name: &'static str,
    pub cxx: &'static str,
}

const ALL: [Compiler; 2] = [
    Compiler {
        name: "gcc",
        cxx: "g++",
    },
    Compiler {
        name: "clang",
        cxx: "clang++",
    },
];

pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The compilers of this machine; one at least.
pub fn compilers() -> &'static [Compiler] {
    static FOUND: OnceLock<Vec<Compiler>> = OnceLock::new();
    let found = FOUND.get_or_init(|| ALL.into_iter().filter(|cc| is_there(cc.name)).collect());
    assert!(!found.is_empty(), "neither gcc nor clang is there");
    found
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
    /// Compiles a file of [`FOLDER`], in the package's folder, so that debug information says `tests/link/NAME.c`.
    pub fn compile(self, file: &str, flags: &[&str], out: &Path) {
        let program = match file.ends_with(".cc") {
            true => self.cxx,
            false => self.name,
        };
        run(Command::new(program)
            .current_dir(package())
            .arg("-c")
            .args(ALWAYS)
            .args(flags)
            .arg("-o")
            .arg(out)
            .arg(Path::new(FOLDER).join(file)));
    }
}

/// What a source says of itself.
pub struct Source {
    /// The name of its ifunc: the file's.
    pub name: String,
    /// Below [`FOLDER`].
    pub file: String,
    text: String,
}

/// An input of a link, by the name that messages have.
pub type Object = (String, Vec<u8>, Role);

impl Source {
    pub fn read(file: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(file)).unwrap();
        let name = Path::new(file).file_stem().unwrap().to_str().unwrap();
        Self {
            name: name.into(),
            file: file.into(),
            text,
        }
    }

    pub fn all(&self, directive: &str) -> Vec<&str> {
        let lines = self.text.lines().filter_map(|line| {
            let line = line.strip_prefix("//#").or_else(|| line.strip_prefix("##"))?;
            line.strip_prefix(directive)?.strip_prefix(':')
        });
        lines.map(str::trim).collect()
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

    /// Whether `Compilers:` has the compiler, or is not there.
    pub fn is_for(&self, compiler: Compiler) -> bool {
        self.words("Compilers")
            .is_none_or(|only| only.contains(&compiler.name))
    }

    /// Compiles the source and what it asks for.
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
    let output = Command::new(compiler.name)
        .arg("-print-libgcc-file-name")
        .output()
        .unwrap();
    let path = String::from_utf8(output.stdout).unwrap();
    std::fs::read(path.trim()).unwrap()
}
