//! C programs that use every function of each variant, as a user compiles them: with two compilers, as C and as C++, linked with the shared
//! library and with the archive.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Libraries, source};
use ifunc_build::COptions;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Paper,
    Slides,
    ThreeChains,
}

impl Variant {
    const ALL: [Self; 3] = [Self::Paper, Self::Slides, Self::ThreeChains];

    fn flags(self) -> Vec<String> {
        let (folder, name) = match self {
            Self::Paper => ("paper", "PAPER"),
            Self::Slides => ("slides", "SLIDES"),
            Self::ThreeChains => ("threechains", "THREECHAINS"),
        };
        let headers = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("include/ifunc/compat")
            .join(folder);
        vec![format!("-D{name}"), format!("-I{}", headers.display())]
    }
}

/// Where cargo left the library: beside this test.
fn built() -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    folder
}

/// Whether there is a UCX to compile with. CI has one, where its absence is an error of `cargo xtask test`.
fn has_ucx() -> bool {
    let there = Path::new("/usr/include/ucp/api/ucp.h").exists();
    if !there {
        println!("not tested without the headers of UCX");
    }
    there
}

struct Build<'a> {
    variant: Variant,
    compiler: &'a str,
    /// `-std`, and the language of the files.
    standard: &'a [&'a str],
    more: &'a [&'a str],
    is_static: bool,
}

const C: &[&str] = &["-std=c99", "-xc"];
const CXX: &[&str] = &["-std=c++11", "-xc++"];

impl Build<'_> {
    /// Compiles the program into `folder`.
    fn program(&self, folder: &Path) -> PathBuf {
        let program = folder.join("program");
        let mut compile = Command::new(self.compiler);
        compile
            .args(self.standard)
            .args(["-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .args(self.variant.flags())
            .args(self.more)
            .arg(source("every.c"))
            .args(["-xnone", "-o"])
            .arg(&program);
        // As its installation does, under the name that programs look for.
        let soname = folder.join("libucp_ifunc.so.0");
        std::os::unix::fs::symlink(built().join("libucp_ifunc.so"), soname).unwrap();
        match self.is_static {
            true => compile.arg(built().join("libucp_ifunc.a")).args([
                "-lucp",
                "-lucs",
                "-lpthread",
                "-ldl",
                "-lm",
                "-lgcc_s",
            ]),
            false => compile
                .arg(format!("-L{}", built().display()))
                .arg(format!("-Wl,-rpath,{}", folder.display()))
                .args(["-lucp_ifunc", "-lucp", "-lucs"]),
        };
        let output = compile.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compile:?}\n{text}");
        program
    }

    /// Compiles it, and runs it by `before`, which may be a tool.
    fn run_by(&self, before: &[&str]) {
        let variant = self.variant;
        // The ifuncs of a program are compiled as it is, if that is C.
        let compiler = (self.standard == C).then(|| format!("{} -std=c99", self.compiler));
        let libraries = Libraries::build(
            &["tally.c", "answers.c"],
            COptions {
                compiler,
                cflags: variant.flags(),
                ..COptions::default()
            },
        );
        let program = self.program(&libraries.folder());
        let mut words: Vec<PathBuf> = before.iter().map(PathBuf::from).collect();
        words.push(program);
        let mut run = Command::new(&words[0]);
        run.args(&words[1..])
            .arg(libraries.folder())
            .env("UCX_WARN_UNUSED_ENV_VARS", "n");
        let output = run.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && output.stdout.ends_with(b"done\n"),
            "{variant:?}, {run:?}: {}\n{text}",
            output.status
        );
    }

    fn run(&self) {
        self.run_by(&[]);
    }
}

const fn build<'a>(variant: Variant, compiler: &'a str, standard: &'a [&'a str]) -> Build<'a> {
    Build {
        variant,
        compiler,
        standard,
        more: &[],
        is_static: false,
    }
}

#[test]
fn a_program_of_each_variant() {
    if !has_ucx() {
        return;
    }
    build(Variant::Paper, "gcc", C).run();
    build(Variant::Slides, "g++", CXX).run();
    let with_archive = Build {
        is_static: true,
        ..build(Variant::ThreeChains, "clang", C)
    };
    with_archive.run();
}

#[test]
fn the_library_defines_the_interface_alone() {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(built().join("libucp_ifunc.so"));
    let output = nm.output().unwrap();
    assert!(output.status.success(), "{nm:?}");
    let symbols = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        symbols.lines().collect::<Vec<_>>(),
        [
            "ucp_deregister_ifunc",
            "ucp_ifunc_config_ends",
            "ucp_ifunc_context_ends",
            "ucp_ifunc_context_made",
            "ucp_ifunc_msg_create",
            "ucp_ifunc_msg_free",
            "ucp_ifunc_msg_get_payload_ptr",
            "ucp_ifunc_msg_send_nbix",
            "ucp_ifunc_send_nbix",
            "ucp_ifunc_set_lib_dir",
            "ucp_poll_ifunc_paper",
            "ucp_poll_ifunc_slides",
            "ucp_poll_ifunc_threechains",
            "ucp_register_ifunc_im_threechains",
            "ucp_register_ifunc_paper",
            "ucp_register_ifunc_slides",
            "ucp_register_ifunc_threechains",
        ]
    );
}

#[test]
#[ignore = "nightly: compiles and runs a program twelve times"]
fn every_variant_by_every_compiler() {
    if !has_ucx() {
        return;
    }
    for variant in Variant::ALL {
        for (compiler, standard) in [("gcc", C), ("clang", C), ("g++", CXX), ("clang++", CXX)] {
            build(variant, compiler, standard).run();
        }
    }
}

#[test]
#[ignore = "nightly: runs programs under sanitizers"]
fn every_variant_under_sanitizers() {
    if !has_ucx() {
        return;
    }
    for variant in Variant::ALL {
        for more in [
            &["-fsanitize=address", "-fno-omit-frame-pointer"][..],
            &["-fsanitize=undefined", "-fno-sanitize-recover=all"],
        ] {
            let sanitized = Build {
                more,
                ..build(variant, "gcc", C)
            };
            sanitized.run();
        }
    }
}

#[test]
#[ignore = "nightly: runs programs under valgrind"]
fn every_variant_under_valgrind() {
    if !has_ucx() {
        return;
    }
    for variant in Variant::ALL {
        build(variant, "gcc", C).run_by(&["valgrind", "--error-exitcode=9", "--quiet"]);
    }
}
