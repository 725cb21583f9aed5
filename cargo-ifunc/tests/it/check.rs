//! `check`: it reports every reason, writes nothing, and emits messages for editors.

use std::path::Path;
use std::process::Command;

use crate::common::{IMAGES, Ran, c_ifunc, ifunc, ifunc_manifest, lock_target, write};
use serde_json::Value;

fn check(folder: &Path, args: &[&str]) -> Ran {
    let _lock = lock_target();
    ifunc(folder, &[&["check", "--target-dir", IMAGES], args].concat())
}

/// A C ifunc that is refused for two reasons.
const BAD: &str = "#include <stddef.h>\n\
    __thread int per_thread;\n\
    static void __attribute__((constructor)) at_start(void) { per_thread = 1; }\n\
    size_t bad_payload_bound(void *a, size_t n) { (void)a; return n; }\n\
    int bad_payload_init(void *a, size_t n, void *p, size_t *s) { (void)a; (void)n; (void)p; (void)s; return 0; }\n\
    void bad_main(void *p, size_t n, void *t) { (void)p; (void)n; (void)t; per_thread++; }\n";

#[test]
fn files_are_linked_in_memory_and_every_reason_is_listed() {
    let folder = tempfile::tempdir().expect("folder");
    write(folder.path(), &[("bad.c", BAD), ("good.c", &c_ifunc("good"))]);
    let tool = |program: &str, args: &[&str]| {
        let status = Command::new(program)
            .args(args)
            .current_dir(folder.path())
            .status();
        assert!(status.is_ok_and(|status| status.success()), "{program} {args:?}");
    };
    tool("cc", &["-O2", "-fPIC", "-c", "bad.c", "-o", "bad.o"]);
    tool("ar", &["rc", "bad.a", "bad.o"]);
    for file in ["bad.c", "bad.o", "bad.a"] {
        ifunc(folder.path(), &["check", file]).failed(
            1,
            &[
                "cannot link the image of `bad`: 2 reasons",
                "thread-local variable: `per_thread`",
                "constructor or destructor: `at_start`",
                "help: ",
            ],
        );
    }
    // The valid file is checked together with the refused one.
    let both = ifunc(folder.path(), &["check", "-v", "good.c", "bad.c"]).failed(1, &["2 reasons"]);
    assert!(!both.err.contains("`good`"), "{}", both.err);
    let good = ifunc(folder.path(), &["check", "-v", "good.c"]).succeeded();
    assert!(good.err.contains("Checked good ("), "{}", good.err);
    assert!(good.err.contains("Checked 1 ifunc in"), "{}", good.err);
    assert!(!folder.path().join("target").exists(), "check wrote files");
}

#[test]
fn unsuitable_paths_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            ("text.txt", ""),
            ("helper.c", "int helper(void) { return 1; }\n"),
            ("text.o", "text"),
        ],
    );
    ifunc(folder.path(), &["check", "text.txt"]).failed(2, &["`text.txt` is not a C file", "help: "]);
    ifunc(folder.path(), &["check", "absent.o"]).failed(2, &["`absent.o` does not exist"]);
    ifunc(folder.path(), &["check", "helper.c"]).failed(1, &["no ifunc is there", "X_payload_init"]);
    ifunc(folder.path(), &["check", "text.o"]).failed(1, &["text.o"]);
    ifunc(folder.path(), &["check", "--message-format", "xml"]).failed(2, &["begin with `json`"]);
}

const UNDECLARED: &str = "#![no_std]\nuse ifunc::prelude::*;\n\
    unsafe extern \"C\" { fn nowhere_declared() -> u64; }\n\
    #[ifunc]\npub fn calls(delta: u64, counter: &mut u64) { *counter = delta + unsafe { nowhere_declared() }; }\n";

#[test]
fn undeclared_symbols_need_a_full_check() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            ("Cargo.toml", &ifunc_manifest("undeclared")),
            ("src/lib.rs", UNDECLARED),
            ("c/by_c.c", &c_ifunc("by_c")),
        ],
    );
    let quick = check(folder.path(), &[]).succeeded();
    assert!(
        quick.err.contains("Checked 1 package (`--full` links too)"),
        "{}",
        quick.err
    );
    check(folder.path(), &["--full"]).failed(1, &["nowhere_declared", "help: "]);
    assert!(
        !Path::new(IMAGES).join("release/calls.so").exists(),
        "check wrote a library"
    );
    write(folder.path(), &[("c/by_c.c", BAD)]);
    check(folder.path(), &[]).failed(1, &["cannot link the image of `bad`: 2 reasons"]);
}

/// An ifunc package, and a package of the host that uses it.
fn workspace(name: &str, ifuncs: &str, host: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    // The packages need unique names: in a target directory that workspaces share, cargo takes packages of
    // one name at one place for the same package, and for fresh if they are older than the other's output.
    let host_manifest = format!(
        "[package]\nname = \"{name}-host\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[dependencies]\n{name}-ifuncs = {{ path = \"../ifuncs\" }}\n"
    );
    write(
        folder.path(),
        &[
            (
                "Cargo.toml",
                "[workspace]\nresolver = \"3\"\nmembers = [\"ifuncs\", \"host\"]\n",
            ),
            ("ifuncs/Cargo.toml", &ifunc_manifest(&format!("{name}-ifuncs"))),
            ("ifuncs/src/lib.rs", ifuncs),
            ("host/Cargo.toml", &host_manifest),
            ("host/src/lib.rs", host),
        ],
    );
    folder
}

/// The texts of errors and warnings, and the success flag of the last message.
fn messages(out: &str) -> (Vec<String>, Value) {
    let all: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line}")))
        .collect();
    let texts = all
        .iter()
        .filter(|message| message["reason"] == "compiler-message");
    let texts = texts
        .map(|message| message["message"]["message"].to_string())
        .collect();
    let finished: Vec<_> = all
        .iter()
        .filter(|message| message["reason"] == "build-finished")
        .collect();
    assert_eq!(finished.len(), 1, "{out}");
    let last = all.last().expect("a message");
    assert_eq!(last["reason"], "build-finished");
    (texts, last["success"].clone())
}

#[test]
#[ignore = "nightly: compiles the SDK once more, as `cargo check`"]
fn an_editor_gets_the_image_build_and_the_other_packages() {
    const IFUNCS: &str = "#![no_std]\nuse ifunc::prelude::*;\n\
        #[ifunc]\npub fn seen(delta: u64, counter: &mut u64) { let unused = 1; *counter += delta; }\n\
        #[cfg(ifunc_image)]\nfn only_in_images() { not_there(); }\n";
    let folder = workspace("seen", IFUNCS, "pub fn host() { let also_unused = 2; }\n");
    let ran = check(folder.path(), &["--message-format=json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let (texts, success) = messages(&ran.out);
    assert_eq!(success, false);
    let count = |what: &str| texts.iter().filter(|text| text.contains(what)).count();
    assert_eq!(count("cannot find function `not_there`"), 1, "{texts:?}");
    assert_eq!(
        count("unused variable: `unused`"),
        1,
        "the message of both builds is not printed once: {texts:?}"
    );
    assert_eq!(count("unused variable: `also_unused`"), 1, "{texts:?}");

    write(
        folder.path(),
        &[(
            "ifuncs/src/lib.rs",
            "#![no_std]\nuse ifunc::prelude::*;\n#[ifunc]\npub fn seen(delta: u64, counter: &mut u64) { *counter += delta; }\n",
        )],
    );
    write(
        folder.path(),
        &[("host/src/lib.rs", "pub fn host() { seen_ifuncs::absent(); }\n")],
    );
    let ran = check(folder.path(), &["--message-format=json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let (texts, _) = messages(&ran.out);
    assert!(texts.iter().any(|text| text.contains("absent")), "{texts:?}");
    // With `-p`, only the named package.
    let ran = check(folder.path(), &["--message-format=json", "-p", "seen-ifuncs"]).succeeded();
    assert_eq!(messages(&ran.out).1, true);
}

#[test]
fn a_crate_that_uses_std_is_refused() {
    let folder = workspace(
        "std",
        "use ifunc::prelude::*;\n#[ifunc]\npub fn add(a: u64, c: &mut u64) { *c += a; }\n",
        "",
    );
    check(folder.path(), &[]).failed(1, &["could not compile ifunc package `std-ifuncs`", "#![no_std]"]);
}
