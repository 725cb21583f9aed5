//! The relocations in the corpus' images, and how the linker resolved them.

use std::collections::BTreeMap;

use ifunc_build::link::RelocationUse;

use crate::settings::Setting;

/// Relocations that compilers are known to emit, each with the linker's test that covers it (`Covers:`),
/// whatever its resolution. The report names those that no case covers.
const KNOWN: [(&str, &str, bool, &str); 29] = [
    ("64", "data", false, "pointers.c"),
    ("64", "data", true, "data_imports.c"),
    ("PC32", "data", false, "jump_table.c"),
    ("PC32", "call rel32", false, "calls.c"),
    ("PC32", "lea r64, [rip]", false, "globals.c"),
    ("PC32", "mov r64, [rip]", false, "globals.c"),
    ("PC32", "mov [rip], r64", false, "globals.c"),
    ("PC32", "mov xmm, [rip]", false, "floats.c"),
    ("PLT32", "call rel32", false, "calls.c"),
    ("PLT32", "call rel32", true, "calls.c"),
    ("PLT32", "jmp rel32", false, "branches.c"),
    ("PLT32", "jmp rel32", true, "calls.c"),
    ("PLT32", "jcc rel32", false, "branches.c"),
    ("GOTPCREL", "call *[rip]", false, "assembly.c"),
    ("GOTPCREL", "call *[rip]", true, "calls.c"),
    ("GOTPCREL", "jmp *[rip]", false, "branches.c"),
    ("GOTPCREL", "jmp *[rip]", true, "branches.c"),
    ("GOTPCREL", "mov r64, [rip]", false, "globals.c"),
    ("GOTPCREL", "mov r64, [rip]", true, "data_imports.c"),
    ("GOTPCREL", "cmp [rip], imm", true, "weak.c"),
    ("GOTPCREL", "mov xmm, [rip]", true, "odd_operands.c"),
    ("GOTPCRELX", "call *[rip]", false, "branches.c"),
    ("GOTPCRELX", "call *[rip]", true, "calls.c"),
    ("GOTPCRELX", "jmp *[rip]", true, "calls.c"),
    ("REX_GOTPCRELX", "mov r64, [rip]", false, "globals.c"),
    ("REX_GOTPCRELX", "mov r64, [rip]", true, "data_imports.c"),
    ("REX_GOTPCRELX", "cmp r64, [rip]", true, "odd_operands.c"),
    ("REX_GOTPCRELX", "sub r64, [rip]", true, "odd_operands.c"),
    ("GOTPCREL", "push [rip]", true, "operands.c"),
];

/// Relocations that the linker refuses, each with the linker's test for it.
const REFUSED: [(&str, &str); 18] = [
    (
        "8, 16, PC8, PC16",
        "refused/reloc_8.s refused/reloc_16.s refused/reloc_pc8.s refused/reloc_pc16.s",
    ),
    (
        "32, 32S",
        "refused/reloc_32.s refused/reloc_32s.s refused/no_pic.c",
    ),
    (
        "PC32 to data of the host",
        "refused/reloc_pc32_lea.s refused/pie.c",
    ),
    (
        "PC64, SIZE32, SIZE64",
        "refused/reloc_pc64.s refused/reloc_size32.s refused/reloc_size64.s",
    ),
    (
        "PLT32 in data, in lea",
        "refused/reloc_plt32_data.s refused/reloc_plt32_lea.s",
    ),
    (
        "GOT32, GOT64, GOTPCREL64",
        "refused/reloc_got32.s refused/reloc_got64.s refused/reloc_gotpcrel64.s",
    ),
    (
        "GOTOFF64, PLTOFF64",
        "refused/reloc_gotoff64.s refused/reloc_pltoff64.s",
    ),
    (
        "GOTPC32, GOTPC64",
        "refused/reloc_gotpc32.s refused/reloc_gotpc64.s refused/large.c",
    ),
    (
        "TLSGD, TLSLD, DTPOFF32",
        "refused/reloc_tlsgd.s refused/reloc_tlsld.s refused/tls.c",
    ),
    (
        "GOTTPOFF, TPOFF32",
        "refused/reloc_gottpoff.s refused/reloc_tpoff32.s refused/tls_initial_exec.c",
    ),
    ("TLSDESC", "refused/reloc_tlsdesc.s refused/tls_descriptor.c"),
    ("thread-locals of Rust", "refused/rust_thread_local.rs"),
    (
        "constructors",
        "refused/constructor.c refused/rust_constructor.rs",
    ),
    ("functions chosen at load (STT_GNU_IFUNC)", "refused/gnu_ifunc.c"),
    ("symbols of a program's linker", "refused/linker_symbols.c"),
    (
        "undeclared symbols",
        "refused/rust_undeclared.rs refused/undeclared.c",
    ),
    (
        "compilers' intermediate code",
        "refused/lto.c refused/rust_bitcode.rs",
    ),
    ("exceptions of C++", "refused/cxx_exception.cc"),
];
const TESTS: &str = "ifunc-link/tests/link";

/// A relocation kind, its place, its target and its resolution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    kind: String,
    place: &'static str,
    import: bool,
    resolved: &'static str,
}

/// How often a relocation occurred, and where first.
#[derive(Debug)]
struct Seen {
    count: usize,
    case: String,
}

/// The relocations that occurred.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    lines: BTreeMap<Line, Seen>,
}

impl Coverage {
    /// Adds the relocations of an image whose case passed.
    pub(crate) fn add(&mut self, uses: &[RelocationUse], case: &str, setting: &Setting) {
        for one in uses {
            let line = Line {
                kind: one.kind.trim_start_matches("R_X86_64_").to_owned(),
                place: one.place,
                import: one.import,
                resolved: one.resolved,
            };
            self.lines
                .entry(line)
                .or_insert_with(|| Seen {
                    count: 0,
                    case: format!("{case} ({setting})"),
                })
                .count += one.count;
        }
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        println!(
            "\n{:<15} {:<18} {:<8} {:<18} {:>9}  case that covers it",
            "relocation", "place", "of", "resolved by", "how often"
        );
        for (line, seen) in &self.lines {
            println!(
                "{:<15} {:<18} {:<8} {:<18} {:>9}  {}",
                line.kind,
                line.place,
                of(line.import),
                line.resolved,
                seen.count,
                seen.case
            );
        }
        let is_there = |(kind, place, import, _): &&(&str, &str, bool, &str)| {
            self.lines
                .keys()
                .any(|line| line.kind == *kind && line.place == *place && line.import == *import)
        };
        for (kind, place, import, test) in KNOWN.iter().filter(|known| !is_there(known)) {
            println!(
                "{kind:<15} {place:<18} {:<8} {:<18} {:>9}  not covered; the linker's test is {test}",
                of(*import),
                "-",
                0
            );
        }
        println!("\nrefused, by the linker's tests in {TESTS}");
        for (what, tests) in REFUSED {
            println!("  {what:<42} {tests}");
        }
    }
}

fn of(import: bool) -> &'static str {
    if import { "import" } else { "internal" }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{KNOWN, REFUSED, TESTS};

    #[test]
    fn named_tests_exist() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(TESTS);
        for test in REFUSED.iter().flat_map(|(_, tests)| tests.split(' ')) {
            assert!(folder.join(test).exists(), "no {TESTS}/{test}");
        }
    }

    /// The linker's test fails if its `Covers:` lines do not hold for each compiler of the machine.
    #[test]
    fn tests_cover_what_they_are_named_for() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(TESTS);
        for (kind, place, import, test) in KNOWN {
            let text = std::fs::read_to_string(folder.join(test)).unwrap();
            let target = if import { "import" } else { "image" };
            let row = format!("//#Covers: R_X86_64_{kind} | {place} | {target} | ");
            assert!(
                text.lines().any(|line| line.starts_with(&row)),
                "{TESTS}/{test} does not contain `{row}..`"
            );
        }
    }
}
