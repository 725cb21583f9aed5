//! Directive tests of the linker: each `link/NAME.c` states in its first lines what the link must yield. It is compiled by
//! every C compiler of the machine in many configurations, linked, and run; the results are compared with the same code in
//! an ordinary shared library.
//!
//! | directive | |
//! |---|---|
//! | `ExpectImports: a b` | exactly these imports, beside what compilers call on their own |
//! | `ExpectImport: a` | this import among others |
//! | `ExpectWeak: a b` | these imports are weak |
//! | `ExpectFunctions: a b`, `ExpectUnknown: a b` | these imports are functions, or nothing says what they are |
//! | `ExpectRelocations: N`, `ExpectRelocationsAtLeast: N`, `ExpectImportRelocations: yes` | install relocations |
//! | `ExpectSlot: yes`, `ExpectRw: no` | there is a slot, no read-write part |
//! | `SetsFloatControl: x86-64 aarch64` | there, some instruction writes what controls floating-point arithmetic (MXCSR and the x87 control word, FPCR); otherwise none does, and all are known |
//! | `MaxBytes: N` | of the image, header included |
//! | `Covers: KIND \| place \| import or image \| how` | with every compiler, some configuration resolves a relocation so; ` by gcc`: with that one |
//! | `Flags: ..`, `Configs: ..`, `Compilers: ..` | more flags for every compilation; these configurations only |
//! | `Machines: aarch64` | for this architecture only |
//! | `Object: file`, `Archive: files`, `Libgcc: yes` | more inputs |
//!
//! What is refused is in `refused.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use crate::common::emulated::{Outcome, emulator};
use crate::common::loaded::{Loaded, process_symbol};
use crate::common::sources::{
    Compiler, Machine, Source, compilers, compilers_for, folder, not_compared, run,
};
use ifunc_abi::image::{Image, ImageFlags, ImportFlags, ImportKind, Relocation};
use ifunc_abi::symbols::COMPILER_IMPORTS;
use ifunc_link::{Imports, Input, Linked, Linker, RelocationUse, Request, Role};

/// Ways to compile: every optimisation level with and without a PLT, and flags that change the code's shape.
const CONFIGS: [&[&str]; 22] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-Os"],
    &["-Og"],
    &["-Oz"],
    &["-O0", "-fno-plt"],
    &["-O1", "-fno-plt"],
    &["-O2", "-fno-plt"],
    &["-O3", "-fno-plt"],
    &["-Os", "-fno-plt"],
    &["-Og", "-fno-plt"],
    &["-Oz", "-fno-plt"],
    &[
        "-O2",
        "-fno-semantic-interposition",
        "-fno-common",
        "-fstack-clash-protection",
    ],
    &["-O2", "-fcf-protection=full"],
    &["-O2", "-fno-plt", "-fcf-protection=full"],
    &["-O2", "-fstack-protector-all"],
    &["-O2", "-mno-red-zone", "-fno-plt"],
    &["-O2", "-Wa,-mrelax-relocations=no", "-fno-plt"],
    &["-O3", "-fpic", "-fno-omit-frame-pointer"],
    &["-O2", "-g", "-fasynchronous-unwind-tables"],
];
/// The configurations of every commit: together they cover what all of [`CONFIGS`] cover.
const BRIEF: [&[&str]; 4] = [
    &["-O0"],
    &["-O2"],
    &["-O2", "-fno-plt"],
    &["-O2", "-Wa,-mrelax-relocations=no", "-fno-plt"],
];

/// The same for AArch64.
const CONFIGS_OF_AARCH64: [&[&str]; 22] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-Os"],
    &["-Og"],
    &["-Oz"],
    &["-O0", "-fno-plt"],
    &["-O1", "-fno-plt"],
    &["-O2", "-fno-plt"],
    &["-O3", "-fno-plt"],
    &["-Os", "-fno-plt"],
    &["-Og", "-fno-plt"],
    &["-Oz", "-fno-plt"],
    &[
        "-O2",
        "-fno-semantic-interposition",
        "-fno-common",
        "-fstack-clash-protection",
    ],
    &["-O2", "-mbranch-protection=standard"],
    &["-O2", "-fno-plt", "-mbranch-protection=standard"],
    &["-O2", "-fstack-protector-all"],
    &["-O2", "-march=armv8.2-a"],
    &["-O3", "-mcpu=neoverse-n1", "-fno-plt"],
    &["-O3", "-fno-omit-frame-pointer"],
    &["-O2", "-g", "-fasynchronous-unwind-tables"],
];
const BRIEF_OF_AARCH64: [&[&str]; 3] = [&["-O0"], &["-O2"], &["-O2", "-fno-plt"]];

/// The host's functions, where both the image and the shared library find them.
fn open_host() {
    static HOST: OnceLock<libloading::os::unix::Library> = OnceLock::new();
    HOST.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libhost.so");
        run(compilers()[0]
            .command("c")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&path)
            .arg(folder().join("host.c")));
        let flags = libloading::os::unix::RTLD_GLOBAL | libloading::os::unix::RTLD_NOW;
        // SAFETY: this test compiled the library, which has no constructors.
        unsafe { libloading::os::unix::Library::open(Some(&path), flags) }.unwrap()
    });
}

fn payloads() -> [Vec<u8>; 4] {
    [
        (0..64).collect(),
        vec![200; 40],
        (0..100).map(|i| (i * 37 % 251) as u8).collect(),
        (0..33).rev().map(|i| i * 7).collect(),
    ]
}

/// The compilers that a source is for, as far as they are there.
fn for_source(source: &Source, machine: Machine) -> Vec<Compiler> {
    let cxx = source.file.ends_with(".cc");
    let fits = |cc: &Compiler| source.is_for(*cc) && (!cxx || cc.has_cxx());
    compilers_for(machine).iter().copied().filter(fits).collect()
}

/// What the same code does as a shared library.
fn reference(source: &Source, machine: Machine, dir: &Path) -> Vec<Outcome> {
    let path = dir.join("reference.so");
    let compiler = *for_source(source, machine).first().unwrap();
    let flags = source.words("Flags").unwrap_or_default();
    let own = dir.join("reference.o");
    let mut own_flags = flags.clone();
    own_flags.extend(["-O1", "-DREFERENCE"]);
    compiler.compile(&source.file, &own_flags, &own);
    // Written by the C compiler: what C++ needs beside its own code is not for an image.
    let mut command = compiler.command("c");
    command.args(["-shared", "-fPIC", "-O1", "-w"]).args(flags);
    command.arg("-o").arg(&path).arg(own);
    // Of an archive, only the first member is used.
    let archived = source.words("Archive").and_then(|files| files.first().copied());
    for object in source.all("Object").into_iter().chain(archived) {
        command.arg(folder().join(object));
    }
    run(&mut command);
    let entry = format!("{}_main", source.name);
    if machine == Machine::AArch64 {
        return emulator().unwrap().run_library(&path, &entry, &payloads());
    }
    type Main = unsafe extern "C" fn(*const u8, usize, *mut u64, *const u8) -> u32;
    // SAFETY: this test compiled the library.
    let library = unsafe { libloading::Library::new(&path) }.unwrap();
    // SAFETY: the entry has this type.
    let main = unsafe { library.get::<Main>(entry.as_bytes()) }.unwrap();
    payloads()
        .iter()
        .map(|payload| {
            let mut out = [0; 64];
            // SAFETY: the sources write 64 numbers at most.
            (
                unsafe {
                    main(
                        payload.as_ptr(),
                        payload.len(),
                        out.as_mut_ptr(),
                        std::ptr::null(),
                    )
                },
                out,
            )
        })
        .collect()
}

fn link(source: &Source, compiler: Compiler, flags: &[&str], dir: &Path) -> Linked {
    let objects = source.objects(compiler, flags, dir);
    let inputs: Vec<_> = objects
        .iter()
        .map(|(name, data, role)| Input {
            name,
            data,
            role: *role,
        })
        .collect();
    let linker = Linker::open(&inputs).unwrap_or_else(|e| panic!("{e}"));
    let request = Request::new(&source.name, Imports::Any);
    let linked = linker.link_explained(&request).unwrap_or_else(|e| panic!("{e}"));
    let again = linker.link(&request);
    assert_eq!(
        Ok(&linked.image),
        again.as_ref(),
        "two links of one linker differ"
    );
    let again = Linker::open(&inputs).unwrap().link(&request);
    assert_eq!(Ok(&linked.image), again.as_ref(), "two linkers differ");
    linked
}

fn check_shape(source: &Source, compiled: (Machine, &[&str]), image: &Image<'_>, bytes: usize) {
    let (machine, flags) = compiled;
    // What compilers call on their own, every target allows.
    let expected = source.words("ExpectImports");
    let own = |symbol: &str| {
        COMPILER_IMPORTS.contains(&symbol) && !expected.as_ref().is_some_and(|e| e.contains(&symbol))
    };
    let imports: BTreeSet<&str> = image.imports().map(|i| i.symbol).filter(|s| !own(s)).collect();
    if let Some(expected) = &expected {
        assert_eq!(imports, expected.iter().copied().collect());
    }
    for import in source.all("ExpectImport") {
        assert!(imports.contains(import), "`{import}` is not among {imports:?}");
    }
    if let Some(weak) = source.words("ExpectWeak") {
        for import in image.imports() {
            let expected = weak.contains(&import.symbol);
            assert!(
                import.flags.contains(ImportFlags::WEAK) || !expected,
                "`{}` is not weak",
                import.symbol
            );
        }
    }
    // A call through the GOT is a load and a branch to a register there: it does not show that the import is a function.
    let shows_calls = machine == Machine::X86_64 || !flags.contains(&"-fno-plt");
    for (directive, kind) in [
        ("ExpectFunctions", ImportKind::Function),
        ("ExpectUnknown", ImportKind::Unknown),
    ] {
        for name in source.words(directive).unwrap_or_default() {
            if kind == ImportKind::Function && !shows_calls {
                continue;
            }
            let import = image.imports().find(|import| import.symbol == name);
            assert_eq!(import.map(|import| import.kind()), Some(kind), "`{name}`");
        }
    }
    if let Some(count) = source.number("ExpectRelocations") {
        assert_eq!(image.relocation_count(), count);
    }
    if let Some(count) = source.number("ExpectRelocationsAtLeast") {
        assert!(image.relocation_count() >= count);
    }
    if let Some(expected) = source.yes("ExpectImportRelocations") {
        assert_eq!(
            image
                .relocations()
                .any(|r| matches!(r, Relocation::Import { .. })),
            expected
        );
    }
    if let Some(expected) = source.yes("ExpectSlot")
        && !image.imports().any(|i| own(i.symbol))
    {
        assert_eq!(image.slot().is_some(), expected);
    }
    if let Some(expected) = source.yes("ExpectRw") {
        assert_eq!(image.rw_range().is_some(), expected);
    }
    let sets = source.words("SetsFloatControl");
    let sets = sets.is_some_and(|machines| machines.contains(&machine.name()));
    assert_eq!(image.flags().contains(ImageFlags::KEEPS_FLOAT_CONTROL), !sets);
    if let Some(limit) = source.number("MaxBytes") {
        assert!(bytes <= limit, "{bytes} bytes, at most {limit} are allowed");
    }
}

/// `R_X86_64_PLT32 | call rel32 | import | thunk`
fn row(case: &RelocationUse) -> String {
    let target = if case.import { "import" } else { "image" };
    format!("{} | {} | {target} | {}", case.kind, case.place, case.resolved)
}

/// What an image does.
fn outcomes(image: &[u8], machine: Machine) -> Vec<Outcome> {
    if machine == Machine::AArch64 {
        return emulator().unwrap().run_image(image, &payloads());
    }
    open_host();
    let loaded = Loaded::new(image, process_symbol).unwrap();
    let run = |mut payload: Vec<u8>| {
        let mut out = [0_u64; 64];
        // SAFETY: the sources write 64 numbers at most.
        (unsafe { loaded.run(&mut payload, &mut out) }, out)
    };
    payloads().map(run).into()
}

/// Compiles, links and runs a source for an architecture, in those of its configurations that are in `among`.
fn check(name: &str, machine: Machine, among: &[&[&str]]) {
    let extension = ["c", "cc"]
        .into_iter()
        .find(|extension| folder().join(format!("{name}.{extension}")).exists());
    let source = Source::read(&format!("{name}.{}", extension.unwrap()));
    if !source.is_for_machine(machine) || (machine == Machine::AArch64 && emulator().is_none()) {
        return;
    }
    let mut configs = source.configs(match machine {
        Machine::X86_64 => &CONFIGS,
        Machine::AArch64 => &CONFIGS_OF_AARCH64,
    });
    configs.retain(|config| among.contains(config));
    assert!(!configs.is_empty(), "{}: no configuration", source.file);
    let compilers = for_source(&source, machine);
    if compilers.is_empty() {
        let here = compilers_for(machine).iter().any(|cc| source.is_for(*cc));
        assert!(!here, "no C++ compiler is there for {}", source.file);
        not_compared(&format!("{}: none of its compilers is there", source.file));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    if machine == Machine::X86_64 {
        open_host();
    }
    let expected = reference(&source, machine, dir.path());
    let mut covered: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for &compiler in &compilers {
        for config in &configs {
            let mut flags = config.to_vec();
            flags.extend(source.words("Flags").unwrap_or_default());
            println!("{} {flags:?}", compiler.name);
            let linked = link(&source, compiler, &flags, dir.path());
            for row in linked.relocations.iter().map(row) {
                covered.entry(row).or_default().insert(compiler.name);
            }
            let bytes = linked.image;
            let image = Image::parse(&bytes).unwrap();
            check_shape(&source, (machine, &flags), &image, bytes.len());
            assert_eq!(outcomes(&bytes, machine), expected);
        }
    }
    let covers = source.all("Covers").into_iter();
    for case in covers.filter(|case| case.starts_with(machine.relocations())) {
        let (case, by) = case.split_once(" by ").unwrap_or((case, ""));
        for &compiler in &compilers {
            if by.is_empty() || by.split_whitespace().any(|by| by == compiler.name) {
                assert!(
                    covered.get(case).is_some_and(|by| by.contains(compiler.name)),
                    "`{case}` by {} is not among {covered:#?}",
                    compiler.name
                );
            }
        }
    }
    if std::env::var_os("LINK_COVERAGE").is_some() {
        eprintln!("{name}: {covered:#?}");
    }
    println!("{covered:#?}");
}

macro_rules! sources {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name), Machine::X86_64, &BRIEF); })*

        mod every_configuration {
            $(
                #[test]
                #[ignore = "nightly: every configuration compiles for a minute"]
                fn $name() {
                    super::check(stringify!($name), super::Machine::X86_64, &super::CONFIGS);
                    super::check(stringify!($name), super::Machine::AArch64, &super::CONFIGS_OF_AARCH64);
                }
            )*
        }

        #[test]
        fn every_source_is_a_test() {
            let listed: BTreeSet<String> = [$(stringify!($name)),*].map(str::to_owned).into();
            let there: BTreeSet<String> = std::fs::read_dir(folder()).unwrap()
                .filter_map(|entry| {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    name.strip_suffix(".c").or(name.strip_suffix(".cc")).filter(|n| *n != "host").map(str::to_owned)
                })
                .collect();
            assert_eq!(listed, there);
        }
    };
}

/// Turns the relocations for the sections that `of` chooses into compact ones, as far as a linker looks at them.
fn make_compact(object: &mut [u8], of: impl Fn(&str) -> bool) {
    use object::{Object, ObjectSection, read::elf::ElfFile64};
    const SHT_RELA: u32 = 4;
    const SHT_CREL: u32 = 0x4000_0014;
    let names: Vec<String> = ElfFile64::<object::LittleEndian>::parse(&*object)
        .unwrap()
        .sections()
        .map(|s| s.name().unwrap().to_owned())
        .collect();
    let table = u64::from_le_bytes(object[40..48].try_into().unwrap()) as usize;
    // The first header of the table is no section's.
    for (index, name) in names.iter().enumerate() {
        let kind = table + (index + 1) * 64 + 4;
        if object[kind..kind + 4] == SHT_RELA.to_le_bytes() && of(name) {
            object[kind..kind + 4].copy_from_slice(&SHT_CREL.to_le_bytes());
        }
    }
}

#[test]
fn compact_relocations_of_what_is_kept_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("calls.o");
    compilers()[0].compile("calls.c", &["-O2", "-g", "-funwind-tables"], &path);
    let image = |of: fn(&str) -> bool| {
        let mut data = std::fs::read(&path).unwrap();
        make_compact(&mut data, of);
        let name = "calls.o";
        let role = Role::User;
        let linker = Linker::open(&[Input {
            name,
            data: &data,
            role,
        }])
        .map_err(|e| e.to_string())?;
        linker
            .link(&Request::new("calls", Imports::Any))
            .map_err(|e| e.to_string())
    };
    let plain = image(|_| false).unwrap();
    assert_eq!(image(|name| name.starts_with(".rela.debug")), Ok(plain));
    let refusal = image(|name| name == ".rela.text.calls_main").unwrap_err();
    assert!(
        refusal.contains("compact relocations (SHT_CREL) for `.text.calls_main`"),
        "{refusal}"
    );
}

/// Messages stay short for long reference chains and many referrers.
#[test]
fn messages_do_not_grow_with_the_square_of_the_code() {
    const FUNCTIONS: usize = 3000;
    let mut text = String::from(".section .tbss,\"awT\",@nobits\nlocal: .zero 8\n");
    for index in 0..FUNCTIONS {
        let name = |index: usize| match index {
            0 => "chain_main".to_owned(),
            _ => format!("function_{index}"),
        };
        let next = name((index + 1) % FUNCTIONS);
        write!(
            text,
            ".section .text.{0},\"ax\",@progbits\n.globl {0}\n.type {0},@function\n\
             {0}: mov local@gottpoff(%rip),%rax\njmp {next}\n.size {0},.-{0}\n",
            name(index)
        )
        .unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("chain.s"), dir.path().join("chain.o"));
    std::fs::write(&source, text).unwrap();
    run(compilers()[0]
        .command("c")
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(&object));
    let input = Input {
        name: "chain.o",
        data: &std::fs::read(object).unwrap(),
        role: Role::User,
    };
    let linker = Linker::open(&[input]).unwrap();
    let error = linker.link(&Request::new("chain", Imports::Any)).unwrap_err();
    let [reason] = &error.reasons[..] else {
        panic!("{error}");
    };
    assert_eq!(reason.referenced_by.len(), 21, "{error}");
    assert_eq!(reason.referenced_by[20], format!("{} more", FUNCTIONS - 20));
    assert!(
        reason.referenced_by[19].ends_with("`function_11`, …"),
        "{}",
        reason.referenced_by[19]
    );
    assert!(error.to_string().len() < 8000, "{error}");
}

/// The sources that every commit links for AArch64 and runs emulated. [`every_configuration`] has all of them.
mod aarch64 {
    use super::{BRIEF_OF_AARCH64, Machine, check};

    macro_rules! sources {
        ($($name:ident)*) => {
            $(#[test] fn $name() { check(stringify!($name), Machine::AArch64, &BRIEF_OF_AARCH64); })*
        };
    }

    sources! { far_entries floats globals many_imports pointers weak_archive }
}

sources! {
    address_in_code arith assembly big_frame branches calls comdat common common_archive
    computed_goto cpu_supports cxx data_imports debug_sections default_version far_data far_entries fat_lto floats
    got_in_data globals jump_table landing_pads large_text libc many_imports medium_small memory_operands
    merge_symbols merge_whole no_sections odd_operands operands pages pie_without_copies
    pointers retpoline sections strings symbols two_ifuncs vector_operands visibility weak weak_and_strong weak_archive zero_size
    zero_size_alone
}
