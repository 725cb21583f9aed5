//! Builds for AArch64 on this machine, by a cross compiler; the libraries are opened under an emulator. Without those tools nothing
//! is compared, which `IFUNC_REQUIRE_AARCH64` forbids.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::common::files::Files;
use crate::common::workspace::{DEPENDS, Workspace};
use ifunc_abi::image::{ARCH_AARCH64, Image, ImportKind};
use ifunc_build::{
    BuildError, BuildOptions, COptions, Cpu, Quiet, Slice, build_c, build_packages, read_library,
};

pub(crate) const TRIPLE: &str = "aarch64-unknown-linux-gnu";
pub(crate) const GCC: &str = "aarch64-linux-gnu-gcc";
pub(crate) const EMULATOR: &str = "qemu-aarch64-static";

const COUNT: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <string.h>
uint64_t host_add(uint64_t, uint64_t);
static uint64_t calls;
static const char *const names[] = {"zero", "one", "two"};
size_t count_payload_bound(const void *args, size_t n) { return n + strlen(names[n % 3]); }
int count_payload_init(const void *args, size_t n, void *payload, size_t *size)
{
    memcpy(payload, args, n);
    *size = n;
    return 0;
}
void count_main(const uint8_t *payload, size_t n, uint64_t *target)
{
    char text[64];
    memcpy(text, payload, n % 64);
    __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < n; i++)
        *target = host_add(*target, text[i % 64]);
}
"#;

/// Opens a library as a source does, and calls a function of it.
const OPENS: &str = r#"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    size_t (*bound)(const void *, size_t) = library ? (size_t (*)(const void *, size_t))dlsym(library, argv[2]) : 0;
    if (!bound)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    printf("%zu", bound(0, 4));
    return 0;
}
"#;

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Whether there is a cross compiler and an emulator.
pub(crate) fn has_tools() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let missing: Vec<&str> = [GCC, EMULATOR]
            .into_iter()
            .filter(|tool| !is_there(tool))
            .collect();
        let required = std::env::var_os("IFUNC_REQUIRE_AARCH64").is_some();
        assert!(missing.is_empty() || !required, "there is no {missing:?}");
        if !missing.is_empty() {
            eprintln!("NOT COMPARED: AArch64: there is no {missing:?}");
        }
        missing.is_empty()
    })
}

fn options(files: &Files) -> COptions {
    COptions {
        triple: Some(TRIPLE.into()),
        ..files.options()
    }
}

/// ELF `e_machine` of a file.
fn machine(path: &Path) -> u16 {
    let file = std::fs::read(path).unwrap();
    u16::from_le_bytes([file[18], file[19]])
}

/// What a source on AArch64 gets from a function of a library.
fn called(library: &Path, function: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("opens.c"), dir.path().join("opens"));
    std::fs::write(&source, OPENS).unwrap();
    let built = Command::new(GCC).arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    let output = Command::new(EMULATOR)
        .args(["-L", "/usr/aarch64-linux-gnu"])
        .arg(&program)
        .arg(library)
        .arg(function)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_become_libraries_of_the_other_architecture() {
    if !has_tools() {
        return;
    }
    for compiler in [None, Some("clang")]
        .into_iter()
        .filter(|cc| cc.is_none_or(is_there))
    {
        let files = Files::new(&[("count.c", COUNT)]);
        let options = COptions {
            compiler: compiler.map(Into::into),
            ..options(&files)
        };
        let built = files.build_with(&["count.c"], &options);
        let library = files.path(&format!("target/{TRIPLE}/release/count.so"));
        assert_eq!(built[0].path, library);
        assert_eq!(machine(&library), ARCH_AARCH64);
        let image = Image::parse(&built[0].image).unwrap();
        assert_eq!((image.arch(), image.cpu_features()), (ARCH_AARCH64, 0));
        assert!(
            !image
                .imports()
                .any(|import| import.symbol.starts_with("__aarch64"))
        );
        let read = read_library(&library).unwrap();
        assert_eq!(read.images[0].image, built[0].image);
        assert_eq!(called(&library, "count_payload_bound"), "7");
        // The library of this machine stays where it is.
        let own = files.build(&["count.c"]);
        assert_eq!(own[0].path, files.path("target/release/count.so"));
        assert_eq!(machine(&library), ARCH_AARCH64);
    }
}

#[test]
fn cpu_features_are_stated() {
    if !has_tools() {
        return;
    }
    let files = Files::new(&[("count.c", COUNT)]);
    let features = |cpu: &str, cflags: &[&str]| {
        let options = COptions {
            cpu: Cpu::from_name(cpu).unwrap(),
            cflags: cflags.iter().map(|&flag| flag.into()).collect(),
            ..options(&files)
        };
        let built = build_c(&[files.path("count.c")], &options, &mut Quiet)?;
        Ok::<u64, BuildError>(Image::parse(&built[0].image).unwrap().cpu_features())
    };
    let bits = |name: &str| Cpu::from_name(name).unwrap().features();
    assert_eq!(features("armv8-a", &[]).unwrap(), 0);
    assert_eq!(features("armv8.1-a", &[]).unwrap(), bits("armv8.1-a"));
    assert_eq!(
        features("armv8.1-a+dotprod+fp16", &[]).unwrap(),
        bits("armv8.1-a+dotprod+fp16")
    );
    assert_eq!(
        features("armv8.3-a+rdm", &[]).unwrap(),
        bits("armv8.3-a"),
        "older compilers have no macro for `rcpc`"
    );
    assert_eq!(features("armv8-a+flagm", &[]).unwrap(), bits("armv8-a+flagm"));
    assert_eq!(features("armv8.5-a+fp16", &[]).unwrap(), bits("armv8.5-a+fp16"));
    let error = features("armv8.1-a+jsconv", &[]).unwrap_err();
    assert!(matches!(error, BuildError::FeaturesOfC { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("`--cpu armv8.1-a+jsconv` has jsconv,")
            && text.contains("`--cpu armv8.3-a` is the least version with it"),
        "{text}"
    );
    assert_eq!(
        features("armv8.1-a+jsconv", &["-march=armv8.4-a"]).unwrap(),
        bits("armv8.4-a")
    );
    // Neither has all that the other one has.
    let options_of_both = COptions {
        cpu: Cpu::from_name("armv8-a+lse").unwrap(),
        slices: vec![Slice::of_cpu(Cpu::from_name("armv8-a+aes").unwrap())],
        ..options(&files)
    };
    let both = files.build_with(&["count.c"], &options_of_both);
    let [aes] = &both[0].other_slices[..] else {
        panic!("{both:?}");
    };
    let lse = Image::parse(&both[0].image).unwrap().cpu_features();
    assert_eq!(
        [lse, aes.machine.cpu_features],
        [bits("armv8-a+lse"), bits("armv8-a+aes")]
    );
    // Of another architecture: the least CPU of this one.
    assert_eq!(features("x86-64-v3", &[]).unwrap(), 0);
    assert_eq!(
        features("armv8.1-a", &["-mcpu=cortex-a72"]).unwrap(),
        bits("armv8-a+crc")
    );
    let error = features("armv8-a", &["-march=armv8.5-a+rng"]).unwrap_err();
    assert!(
        matches!(&error, BuildError::CpuFeatures { macros, .. } if macros == "__ARM_FEATURE_RNG"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("`-march=armv8.5-a+rng` enables CPU features of AArch64"),
        "{error}"
    );
}

#[test]
fn frames_that_clang_does_not_probe_are_refused() {
    if !has_tools() || !is_there("clang") {
        return;
    }
    let frame = COUNT.replace(
        "char text[64];",
        "char text[64], large[70000]; __asm__(\"\" :: \"r\"(large));",
    );
    let files = Files::new(&[("count.c", &frame)]);
    let options = COptions {
        compiler: Some("clang".into()),
        ..options(&files)
    };
    let output = Command::new("clang").arg("-dumpversion").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    let probes = version.split('.').next().unwrap().trim().parse::<u32>().unwrap() >= 18;
    match build_c(&[files.path("count.c")], &options, &mut Quiet) {
        Ok(_) => assert!(probes, "Clang {version}"),
        Err(error) => assert!(
            matches!(&error, BuildError::CompileC { stderr, .. } if stderr.contains("stack frame size") && !probes),
            "{error}"
        ),
    }
}

#[test]
fn guarded_frames_import_the_guard_as_a_variable() {
    if !has_tools() {
        return;
    }
    let files = Files::new(&[("count.c", COUNT)]);
    let options = COptions {
        cflags: vec!["-fstack-protector-all".into()],
        ..options(&files)
    };
    let built = files.build_with(&["count.c"], &options);
    let image = Image::parse(&built[0].image).unwrap();
    let kind = |symbol: &str| {
        let import = image.imports().find(|import| import.symbol == symbol);
        import.map(|import| import.kind())
    };
    assert_eq!(kind("__stack_chk_guard"), Some(ImportKind::Variable));
    assert_eq!(kind("__stack_chk_fail"), Some(ImportKind::Function));
}

#[test]
fn compilers_and_triples_that_do_not_fit_are_refused() {
    let files = Files::new(&[("count.c", COUNT)]);
    let refused = |change: &dyn Fn(&mut COptions)| {
        let mut options = options(&files);
        change(&mut options);
        build_c(&[files.path("count.c")], &options, &mut Quiet).unwrap_err()
    };
    let error = refused(&|options| options.triple = Some("riscv64gc-unknown-linux-gnu".into()));
    assert!(matches!(error, BuildError::UnknownTriple { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("help: images are for x86-64 and AArch64 Linux"),
        "{error}"
    );
    if is_there("gcc") {
        let error = refused(&|options| options.compiler = Some("gcc".into()));
        assert!(matches!(error, BuildError::OtherMachine { .. }), "{error:?}");
        let text = error.to_string();
        for said in [
            "`gcc` compiles for `x86_64-linux-gnu`",
            "`CC_aarch64_unknown_linux_gnu`",
            "`gcc-aarch64-linux-gnu`",
        ] {
            assert!(text.contains(said), "{text}");
        }
    }
    let error = refused(&|options| options.compiler = Some("/no/such/cc".into()));
    assert!(matches!(error, BuildError::Spawn { .. }), "{error:?}");
    assert!(error.to_string().contains(GCC), "{error}");
}

/// Whether rustc has `core` for the triple.
pub(crate) fn has_core() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TRIPLE])
        .output()
        .unwrap();
    let folder = String::from_utf8(output.stdout).unwrap();
    let files = std::fs::read_dir(folder.trim()).into_iter().flatten().flatten();
    let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with("libcore-"))
}

#[test]
fn packages_become_libraries_of_the_other_architecture_or_say_what_is_missing() {
    if !has_tools() {
        return;
    }
    let workspace = Workspace::new(&["cross-ifuncs"]);
    let folder = workspace.package(
        "cross-ifuncs",
        &format!("{DEPENDS}\n[package.metadata.ifunc]\ncpu = [\"x86-64-v2\", \"armv8.1-a\"]\n"),
        "#![no_std]\nuse ifunc::prelude::*;\n#[ifunc]\npub fn cross_sum(payload: &[u8], total: &mut u64) -> u64 {\n\
         for byte in payload { *total += u64::from(*byte); }\n*total }\n",
    );
    std::fs::create_dir(folder.join("c")).unwrap();
    std::fs::write(folder.join("c/count.c"), COUNT.replace("count_", "cross_count_")).unwrap();
    let options = BuildOptions {
        triple: Some(TRIPLE.into()),
        ..workspace.options()
    };
    let built = build_packages(&options, &mut Quiet);
    if !has_core() {
        let error = built.unwrap_err().to_string();
        let help = format!(
            "help: the compiler has no `core` for `{TRIPLE}`: `rustup target add {TRIPLE}` installs it"
        );
        assert!(error.contains(&help), "{error}");
        return;
    }
    let built = built.unwrap();
    assert_eq!(built.len(), 2);
    for ifunc in built {
        let image = Image::parse(&ifunc.image).unwrap();
        let features = Cpu::from_name("armv8.1-a").unwrap().features();
        assert_eq!((image.arch(), image.cpu_features()), (ARCH_AARCH64, features));
        assert!(
            ifunc
                .path
                .ends_with(format!("{TRIPLE}/release/{}.so", ifunc.name))
        );
        assert_eq!(machine(&ifunc.path), ARCH_AARCH64);
        let bound = called(&ifunc.path, &format!("{}_payload_bound", ifunc.name));
        assert!(!bound.is_empty());
    }
}
