//! Objects with bytes changed at random: the linker says yes or no, never panics, and what it says yes to is an image.

use std::path::Path;
use std::process::Command;

use ifunc_abi::image::Image;
use ifunc_build::link::{Imports, Input, Linker, Request, Role};

/// How many mutants of each object.
const CASES: usize = 3000;

/// A small generator (xorshift64*): the same mutants on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn compile(name: &str, extra: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/link/{name}.c"));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("x.o");
    let flags = [
        "-c",
        "-O2",
        "-fPIC",
        "-ffunction-sections",
        "-fdata-sections",
        "-w",
    ];
    let status = Command::new("cc")
        .args(flags)
        .args(extra)
        .arg("-o")
        .arg(&out)
        .arg(source)
        .status();
    assert!(status.unwrap().success());
    std::fs::read(out).unwrap()
}

/// Where the structure of an ELF object is: its header, section headers, symbols and relocations.
fn structure(object: &[u8]) -> Vec<(usize, usize)> {
    use object::{Object, ObjectSection};
    let word = |at: usize| u64::from_le_bytes(object[at..at + 8].try_into().unwrap()) as usize;
    let mut ranges = vec![(0, 64), (word(40), object.len() - word(40))];
    let file = object::File::parse(object).unwrap();
    let tables = file.sections().filter(|s| {
        s.name()
            .is_ok_and(|name| name.starts_with(".rela") || name == ".symtab" || name == ".strtab")
    });
    ranges.extend(
        tables
            .filter_map(|s| s.file_range())
            .map(|(at, len)| (at as usize, len as usize)),
    );
    ranges.retain(|range| range.1 > 0);
    ranges
}

fn mutate(object: &[u8], ranges: &[(usize, usize)], random: &mut Random) -> Vec<u8> {
    let mut mutant = object.to_vec();
    for _ in 0..1 + random.below(4) {
        let (at, len) = if random.below(4) == 0 {
            (0, object.len())
        } else {
            ranges[random.below(ranges.len())]
        };
        let at = at + random.below(len);
        match random.below(4) {
            0 => mutant[at] ^= 1 << random.below(8),
            1 => mutant[at] = random.next() as u8,
            2 => mutant[at] = [0, 0xff, 0x7f, 0x80][random.below(4)],
            _ => {
                let end = (at + 8).min(mutant.len());
                let value = [0, u64::MAX, 1 << 63, i32::MAX as u64, random.next()][random.below(5)];
                mutant[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
        }
    }
    if random.below(20) == 0 {
        mutant.truncate(random.below(mutant.len()));
    }
    mutant
}

#[test]
fn mutants_are_linked_or_refused() {
    let mut random = Random(0x1f_u64 << 32 | 0xc0de);
    let (mut unreadable, mut refused, mut linked) = (0, 0, 0);
    for name in [
        "data_imports",
        "globals",
        "jump_table",
        "strings",
        "odd_operands",
        "weak",
    ] {
        for extra in [&[][..], &["-fno-plt", "-g", "-fasynchronous-unwind-tables"]] {
            let object = compile(name, extra);
            let ranges = structure(&object);
            for _ in 0..CASES / 2 {
                let mutant = mutate(&object, &ranges, &mut random);
                let input = [Input {
                    name: "mutant.o",
                    data: &mutant,
                    role: Role::User,
                }];
                let Ok(linker) = Linker::open(&input) else {
                    unreadable += 1;
                    continue;
                };
                match linker.link(&Request::new(name, Imports::Any)) {
                    Ok(image) => {
                        Image::parse(&image).unwrap();
                        linked += 1;
                    }
                    Err(error) => {
                        assert!(!error.reasons.is_empty() && !error.to_string().is_empty());
                        refused += 1;
                    }
                }
            }
        }
    }
    println!("{unreadable} unreadable, {refused} refused, {linked} linked");
    assert!(
        unreadable > 500 && refused > 500 && linked > 500,
        "the mutations miss a stage"
    );
}

#[test]
fn mutated_archives_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("x.a");
    for name in ["arith", "strings"] {
        std::fs::write(dir.path().join(format!("{name}.o")), compile(name, &[])).unwrap();
    }
    let status = Command::new("ar")
        .current_dir(dir.path())
        .args(["rcs", "x.a", "arith.o", "strings.o"])
        .status();
    assert!(status.unwrap().success());
    let archive = std::fs::read(archive).unwrap();
    let mut random = Random(77);
    let (mut refused, mut linked) = (0, 0);
    for _ in 0..2000 {
        let mutant = mutate(&archive, &[(0, 400)], &mut random);
        let input = [Input {
            name: "mutant.a",
            data: &mutant,
            role: Role::User,
        }];
        let image = Linker::open(&input)
            .map_err(|e| e.to_string())
            .and_then(|linker| {
                linker
                    .link(&Request::new("strings", Imports::Any))
                    .map_err(|e| e.to_string())
            });
        match image {
            Ok(image) => {
                Image::parse(&image).unwrap();
                linked += 1;
            }
            Err(_) => refused += 1,
        }
    }
    println!("{refused} refused, {linked} linked");
    assert!(refused > 100 && linked > 100);
}
