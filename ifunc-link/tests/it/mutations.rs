//! Objects that were changed at random: the linker makes an image or refuses, and never panics; a target installs every
//! image that it makes.

mod mutant;
mod target;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::common::emulated::emulator;
use crate::common::sources::{Compiler, FOLDER, Machine, compilers, compilers_for, package, run};
use ifunc_abi::image::Image;
use ifunc_link::{Imports, Input, InputError, LinkError, Linked, Linker, Request, Role};
use mutant::{Random, Seed, blind};
use target::{Loader, Outcome};

/// How many mutants of objects there are, all seeds together; more or fewer, and others, with `MUTANTS=1000000` in the environment.
const CASES: usize = 10_000;
/// No image of these seeds is larger: a mutant cannot make the linker write without end.
const LARGEST: usize = 4 << 20;

const C: [&str; 8] = [
    "calls",
    "comdat",
    "data_imports",
    "globals",
    "jump_table",
    "odd_operands",
    "strings",
    "weak",
];
const C_OF_AARCH64: [&str; 8] = [
    "branches",
    "calls",
    "data_imports",
    "globals",
    "jump_table",
    "pages",
    "strings",
    "weak",
];
const RUST: [&str; 2] = ["rust_dispatch", "rust_undeclared"];

/// Objects of every compiler that is there, with debug information and without.
fn seeds() -> Vec<Seed> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("seed.o");
    let mut seeds = seeds_of_c(compilers(), &C);
    for name in RUST {
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        run(Command::new(rustc)
            .current_dir(package())
            .args(["--edition=2024", "--crate-type=lib", "--emit=obj", "-Awarnings"])
            .args(["-Cpanic=abort", "-Copt-level=1", "-Cdebuginfo=line-tables-only"])
            .arg("-o")
            .arg(&out)
            .arg(Path::new(FOLDER).join(format!("refused/{name}.rs"))));
        seeds.push(Seed::new(name, "rustc", std::fs::read(&out).unwrap()));
    }
    seeds
}

/// Objects of C sources.
fn seeds_of_c(compilers: &[Compiler], names: &[&str]) -> Vec<Seed> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("seed.o");
    let mut seeds = Vec::new();
    for compiler in compilers {
        for (index, name) in names.iter().enumerate() {
            let flags: &[&str] = match index % 2 {
                0 => &["-O2"],
                _ => &["-O1", "-g1", "-fno-plt", "-fasynchronous-unwind-tables"],
            };
            compiler.compile(&format!("{name}.c"), flags, &out);
            seeds.push(Seed::new(name, compiler.name, std::fs::read(&out).unwrap()));
        }
    }
    seeds
}

/// How many mutants there are.
fn cases() -> usize {
    let more = std::env::var("MUTANTS").map(|more| more.parse().unwrap());
    more.unwrap_or(CASES)
}

/// What becomes of a mutant, with the image if there is one.
fn outcome(seed: &Seed, mutant: &[u8], stages: &mut Stages) -> Option<Vec<u8>> {
    match link(&seed.name, "mutant.o", mutant) {
        Err(No::Input(error)) => {
            assert!(error.to_string().contains("\nhelp: "), "{error}");
            stages.reach("unreadable");
            None
        }
        Err(No::Link(error)) => {
            assert!(!error.reasons.is_empty());
            assert_eq!(
                error.to_string().matches("\n    help: ").count(),
                error.reasons.len(),
                "{error}"
            );
            for reason in &error.reasons {
                stages.reach(format!("refused: {:?}", reason.rule));
            }
            stages.reach("refused");
            None
        }
        Ok(Linked { image, debug, .. }) => {
            assert!(image.len() <= LARGEST, "{} bytes", image.len());
            if !debug.is_empty() {
                object::File::parse(&*debug).unwrap();
            }
            Some(image)
        }
    }
}

/// Why a mutant makes no image.
enum No {
    Input(InputError),
    Link(LinkError),
}

fn link(name: &str, file: &str, data: &[u8]) -> Result<Linked, No> {
    let role = Role::User;
    let input = [Input {
        name: file,
        data,
        role,
    }];
    Linker::open(&input)
        .map_err(No::Input)?
        .link_explained(&Request::new(name, Imports::Any))
        .map_err(No::Link)
}

/// How far mutants came.
#[derive(Default)]
struct Stages(BTreeMap<String, usize>);

impl Stages {
    fn reach(&mut self, stage: impl Into<String>) {
        *self.0.entry(stage.into()).or_default() += 1;
    }

    fn count(&self, stage: &str) -> usize {
        self.0
            .iter()
            .filter(|(known, _)| known.starts_with(stage))
            .map(|(_, count)| count)
            .sum()
    }

    /// Says how far they came: past the harness, which keeps to itself what a macro prints.
    fn print(&self, what: &str) {
        let mut tally = format!("{what}\n");
        for (stage, count) in &self.0 {
            tally += &format!("{count:>7} {stage}\n");
        }
        let _ = std::io::stdout().write_all(tally.as_bytes());
    }
}

#[test]
fn mutants_are_refused_or_installed() {
    let seeds = seeds();
    let mut names = Vec::new();
    for seed in &seeds {
        let image = link(&seed.name, "seed.o", &seed.bytes)
            .unwrap_or_else(|_| panic!("{} by {} is no seed", seed.name, seed.by))
            .image;
        let image = Image::parse(&image).unwrap();
        names.extend(image.imports().map(|import| import.symbol.to_owned()));
    }
    names.sort();
    names.dedup();
    let loader = Loader::start(&names);
    let cases = cases();
    let mut random = Random(0x1f_0000_c0de ^ cases.abs_diff(CASES) as u64);
    let mut stages = Stages::default();
    for case in 0..cases {
        let seed = &seeds[case % seeds.len()];
        let mutant = seed.mutate(&mut random);
        if let Some(image) = outcome(seed, &mutant, &mut stages) {
            let outcome = loader.install(&image);
            stages.reach(format!("linked: {outcome:?}"));
        }
    }
    stages.print(&format!("{cases} mutants of {} objects", seeds.len()));
    let installed = format!("linked: {:?}", Outcome::Installed);
    assert!(stages.count("unreadable") > cases / 20, "too few are unreadable");
    assert!(stages.count("refused: ") > cases / 10, "too few are refused");
    assert!(stages.count(&installed) > cases / 5, "too few are installed");
    assert!(
        stages.count("linked: NotTried") * 100 < stages.count("linked: "),
        "too many are not tried"
    );
}

/// As above, for an architecture that no target of this machine has: each image is one that a target parses.
#[test]
#[ignore = "nightly: those of x86-64 take the same code, and each is also run"]
fn mutants_of_aarch64_are_refused_or_valid() {
    let compilers = compilers_for(Machine::AArch64);
    if emulator().is_none() {
        return;
    }
    let seeds = seeds_of_c(compilers, &C_OF_AARCH64);
    let cases = cases();
    let mut random = Random(0xa64_0000_c0de ^ cases.abs_diff(CASES) as u64);
    let mut stages = Stages::default();
    for case in 0..cases {
        let seed = &seeds[case % seeds.len()];
        let mutant = seed.mutate(&mut random);
        if let Some(image) = outcome(seed, &mutant, &mut stages) {
            let image = Image::parse(&image).unwrap_or_else(|error| panic!("{}: {error}", seed.name));
            assert!(image.entries().len() > 0);
            stages.reach("linked");
        }
    }
    stages.print(&format!("{cases} mutants of {} objects for AArch64", seeds.len()));
    assert!(stages.count("unreadable") > cases / 20, "too few are unreadable");
    assert!(stages.count("refused: ") > cases / 10, "too few are refused");
    assert!(stages.count("linked") > cases / 5, "too few are linked");
}

#[test]
fn mutated_archives_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["arith", "strings"] {
        let out = dir.path().join(format!("{name}.o"));
        compilers()[0].compile(&format!("{name}.c"), &["-O2"], &out);
    }
    run(Command::new("ar")
        .current_dir(dir.path())
        .args(["rcs", "x.a", "arith.o", "strings.o"]));
    let archive = std::fs::read(dir.path().join("x.a")).unwrap();
    let mut random = Random(77);
    let mut stages = Stages::default();
    for _ in 0..2000 {
        let mut mutant = archive.clone();
        for _ in 0..1 + random.below(4) {
            // The symbol table and the first header, or anything.
            let end = [400, archive.len()][usize::from(random.below(4) == 0)];
            blind(&mut mutant[..end], &mut random);
        }
        match link("strings", "mutant.a", &mutant) {
            Ok(linked) => {
                Image::parse(&linked.image).unwrap();
                stages.reach("linked");
            }
            Err(No::Input(_)) => stages.reach("unreadable"),
            Err(No::Link(_)) => stages.reach("refused"),
        }
    }
    stages.print("2000 mutants of an archive");
    assert!(stages.count("unreadable") + stages.count("refused") > 100 && stages.count("linked") > 100);
}
