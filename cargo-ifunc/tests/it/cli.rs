//! The command line: help, usage, error messages, colour.

use std::os::unix::fs::PermissionsExt as _;

use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageParts};

use crate::common::{IMAGES, checkout, command, ifunc, ifunc_manifest, lock_target, ran, write};

#[test]
fn help_names_every_subcommand() {
    let here = checkout();
    let help = ifunc(&here, &["--help"]).succeeded().out;
    for (name, about) in [
        ("build", "Build the ifunc packages"),
        ("check", "without building"),
        ("test", "run their tests"),
        ("keygen", "Make a key"),
        ("sign", "Sign images"),
        ("verify", "Check the signatures"),
        ("expand", "what the attributes expand to"),
        ("doctor", "what this machine has"),
        ("inspect", "Show the contents of an ifunc library"),
        ("run", "run its target and its source"),
        ("call", "Call an ifunc on a running target"),
        ("clean", "Remove what this command has built"),
        ("top", "activity of a running target"),
        ("new", "Create a project"),
    ] {
        let line = help.lines().find(|line| line.trim_start().starts_with(name));
        assert!(line.is_some_and(|line| line.contains(about)), "{name} in\n{help}");
        let own = ifunc(&here, &[name, "--help"]).succeeded().out;
        assert!(own.contains(&format!("Usage: cargo ifunc {name}")), "{own}");
    }
    let run = ifunc(&here, &["run", "--help"]).succeeded().out;
    for text in [
        "--transport",
        "--timeout",
        "[-- <ARGS>...]",
        "IFUNC_ADDR",
        "loopback",
        "default: 300",
    ] {
        assert!(run.contains(text), "{text} in\n{run}");
    }
}

#[test]
fn works_with_and_without_cargo() {
    let version = ifunc(&checkout(), &["--version"]).succeeded().out;
    assert!(
        version.starts_with("cargo-ifunc") || version.starts_with("cargo ifunc"),
        "{version}"
    );
    let mut by_hand = std::process::Command::new(env!("CARGO_BIN_EXE_cargo-ifunc"));
    assert_eq!(ran(by_hand.arg("--version")).succeeded().out, version);
}

#[test]
fn bad_usage_is_exit_code_2() {
    let here = checkout();
    for args in [
        &["nonsense"][..],
        &[],
        &["build", "--nonsense"],
        &["build", "x.c", "--package", "p"],
        &["build", "--cflag=-O0"],
        &["build", "ifunc/src/lib.rs"],
        &["build", "missing.c"],
        &["inspect"],
        &["run", "01-hello", "--timeout", "0"],
        &["run", "01-hello", "--transport", "pigeon"],
        &["new"],
        &["new", "x", "--path", ".", "--git", "file:///x"],
        &["-v", "-q", "build"],
    ] {
        let ran = ifunc(&here, args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
    }
}

#[test]
fn an_unknown_example_lists_the_examples() {
    ifunc(&checkout(), &["run", "03-nothing"]).failed(
        1,
        &[
            "error: no example or host package is named `03-nothing`",
            "help: there are: 01-hello, 02-compressed-insert",
        ],
    );
    ifunc(&checkout(), &["run", "01-hello-ifuncs"]).failed(1, &["is not a host package", "01-hello"]);
    ifunc(&checkout(), &["run"]).failed(2, &["several host packages", "01-hello"]);
}

#[test]
fn nothing_to_build_says_how_to_start() {
    let folder = tempfile::tempdir().expect("folder");
    ifunc(folder.path(), &["build"]).failed(
        1,
        &[
            "error: cannot read the workspace",
            "Cargo.toml",
            "cargo ifunc new NAME",
        ],
    );
    write(
        folder.path(),
        &[
            ("Cargo.toml", "[package]\nname = \"plain\"\nedition = \"2024\"\n"),
            ("src/lib.rs", ""),
        ],
    );
    ifunc(folder.path(), &["build"]).failed(
        1,
        &[
            "depends on `ifunc`",
            "cargo ifunc new NAME",
            "cargo ifunc build PATH.c",
        ],
    );
    ifunc(folder.path(), &["run"]).failed(1, &["no host package", "cargo ifunc new NAME"]);
    ifunc(folder.path(), &["run", "plain"]).failed(1, &["is not a host package", "ifunc-rt"]);
}

#[test]
fn an_ifunc_package_without_ifuncs_is_an_error_when_it_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            ("Cargo.toml", &ifunc_manifest("empty")),
            ("src/lib.rs", "#![no_std]\n"),
        ],
    );
    let _lock = lock_target();
    let args = ["build", "--target-dir", IMAGES, "-p", "empty"];
    ifunc(folder.path(), &args).failed(1, &["package `empty` has no ifunc", "help: "]);
    ifunc(folder.path(), &["build", "-p", "absent"]).failed(1, &["`absent`", "help: "]);
}

#[test]
fn color_options_are_honoured() {
    let folder = tempfile::tempdir().expect("folder");
    let colored = |args: &[&str], env: Option<(&str, &str)>| {
        let mut command = command(folder.path(), args);
        command.envs(env);
        ran(&mut command).err.contains("\x1b[")
    };
    assert!(!colored(&["build"], None), "not a terminal");
    assert!(colored(&["build", "--color", "always"], None));
    assert!(colored(&["--color=always", "build"], None));
    assert!(colored(&["build"], Some(("CARGO_TERM_COLOR", "always"))));
    assert!(!colored(
        &["build", "--color", "never"],
        Some(("CARGO_TERM_COLOR", "always"))
    ));
    assert!(colored(&["build", "--color", "always"], Some(("NO_COLOR", "1"))));
    assert!(
        colored(&["build", "--nonsense"], Some(("CARGO_TERM_COLOR", "always"))),
        "usage errors, too"
    );
}

#[test]
fn inspect_reports_why_a_file_is_not_a_library() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[("text.so", "not a library"), ("broken.image", "IFNC and no more")],
    );
    ifunc(folder.path(), &["inspect", "absent.so"]).failed(1, &["error: cannot read `absent.so`"]);
    ifunc(folder.path(), &["inspect", "text.so"]).failed(
        1,
        &[
            "`text.so` is not an ELF file",
            "help: `cargo ifunc build` makes libraries",
        ],
    );
    ifunc(folder.path(), &["inspect", "broken.image"])
        .failed(1, &["`broken.image`", "too few for an image header"]);
    let us = env!("CARGO_BIN_EXE_cargo-ifunc");
    ifunc(folder.path(), &["inspect", us]).failed(1, &["holds no image", "help: "]);

    let mut program = b"\x7fELF, and what else a program holds: IFNC".repeat(9);
    let offset = program.len();
    program.extend(image("first"));
    program.extend(image("second"));
    std::fs::write(folder.path().join("program"), program).expect("file");
    let shown = ifunc(folder.path(), &["inspect", "program"]).succeeded().out;
    assert!(shown.contains(&format!("at {offset:#x} of the file")), "{shown}");
    let json = ifunc(folder.path(), &["inspect", "--json", "program"])
        .succeeded()
        .out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json[0]["name"], &json[1]["name"]),
        (&"first".into(), &"second".into())
    );
    assert_eq!(json[0]["offset"], offset);
}

/// An image with one ifunc, which returns at once.
fn image(name: &str) -> Vec<u8> {
    let image = ImageParts {
        entries: vec![EntryPart::new(name)],
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        // xor eax, eax; ret
        rx: vec![0x31, 0xc0, 0xc3],
        ..ImageParts::default()
    };
    image.encode().expect("an image")
}

#[test]
fn an_authority_certifies_processes() {
    use ifunc_rt::keys::{Certificate, CertificateAuthority, SecretKey, TlsKeys};
    use ifunc_rt::{ConnectError, Policy, Source, SourceError, SourceOptions, Target};

    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path();
    ifunc(folder, &["keygen", "--ca", "cluster"]).succeeded();
    let by = ["keygen", "--by", "cluster.key", "--certificate"];
    let certify = |args: &[&str]| ifunc(folder, &[&by, args].concat());
    certify(&["127.0.0.1", "--certificate", "store.example", "store"]).succeeded();
    certify(&["spiffe://cluster/ada", "ada"]).succeeded();
    certify(&["bob.example", "--days", "1", "bob"]).succeeded();
    certify(&["a b", "eve"]).failed(2, &["`a b` is no name", "help: "]);
    certify(&["store.example", "store"]).failed(1, &["`store.key` exists"]);
    ifunc(folder, &["keygen", "--certificate", "x", "x"]).failed(2, &["--by"]);

    let file = |name: &str| folder.join(name);
    let trusted = CertificateAuthority::read(file("cluster.pem")).expect("an authority");
    let keys = |name: &str| {
        let key = SecretKey::read(file(&format!("{name}.key"))).expect("a key");
        let certificate = Certificate::read(file(&format!("{name}.pem"))).expect("a certificate");
        let keys = TlsKeys::new(key).certificate(certificate).expect("of the key");
        keys.authority(trusted.clone())
    };
    let policy = Policy::new()
        .connect_certificate(trusted.clone(), ["spiffe://cluster/ada"])
        .expect("a name");
    let target = Target::builder().policy(policy).tls(keys("store"));
    let serving = target
        .listen("tls://127.0.0.1:0")
        .expect("a target")
        .spawn(0u64)
        .expect("a thread");
    let connect = |name| {
        let options = SourceOptions::default().tls(Some(keys(name)));
        Source::connect_with(serving.address(), options)
    };
    drop(connect("ada").expect("a connection"));
    let refused = connect("bob").map(drop).expect_err("another name");
    assert!(
        matches!(&refused, SourceError::Connect(ConnectError::Refused { reason, .. }) if reason.contains("`bob.example`")),
        "{refused}"
    );
}

#[test]
fn an_image_is_signed_by_a_key_and_verified() {
    let folder = tempfile::tempdir().expect("folder");
    let folder = folder.path();
    let mode = |name: &str| {
        let about = std::fs::metadata(folder.join(name)).expect("a file");
        about.permissions().mode() & 0o777
    };
    for name in ["add", "sub"] {
        std::fs::write(folder.join(format!("{name}.so")), image(name)).expect("a file");
    }
    for key in ["builds", "others"] {
        ifunc(folder, &["keygen", key]).succeeded();
    }
    assert_eq!(mode("builds.key"), 0o600);
    let again = ifunc(folder, &["keygen", "builds"]);
    again.failed(1, &["`builds.key` exists", "help: "]);

    let verify = |args: &[&str]| ifunc(folder, &[&["verify"], args].concat());
    let unsigned = verify(&["add.so"]);
    unsigned.failed(
        1,
        &["`add` in `add.so` is not signed", "add.sig", "cargo ifunc sign"],
    );
    ifunc(folder, &["sign", "--key", "builds.key", "add.so", "sub.so"]).succeeded();
    let both = verify(&["-k", "others.pub", "-k", "builds.pub", "add.so", "sub.so"]).succeeded();
    assert!(
        both.err.contains("add in add.so, signed by builds"),
        "{}",
        both.err
    );
    verify(&["-k", "others.pub", "add.so"]).failed(1, &["is signed by another key"]);
    // A second signature stands beside the first one.
    ifunc(folder, &["sign", "-k", "others.key", "add.so"]).succeeded();
    verify(&["-k", "others.pub", "add.so"]).succeeded();
    verify(&["-k", "builds.pub", "add.so"]).succeeded();

    // What is built again has to be signed again, and the old signatures are dropped then.
    std::fs::write(folder.join("add.so"), image("add_2")).expect("a file");
    verify(&["add.so"]).failed(1, &["`add_2` in `add.so` is not signed"]);
    ifunc(folder, &["sign", "-k", "builds.key", "add.so"]).succeeded();
    let lines = std::fs::read_to_string(folder.join("add.sig")).expect("signatures");
    assert_eq!(lines.lines().count(), 1);
    let changed = lines.trim_end().to_owned();
    let last = if changed.ends_with('0') { '1' } else { '0' };
    let changed = format!("{}{last}\n", &changed[..changed.len() - 1]);
    std::fs::write(folder.join("add.sig"), changed).expect("a file");
    verify(&["add.so"]).failed(1, &["has a signature that is wrong"]);

    ifunc(
        folder,
        &["sign", "-k", "builds.key", "-o", "all", "add.so", "sub.so"],
    )
    .succeeded();
    verify(&["--signatures", "all", "-k", "builds.pub", "add.so", "sub.so"]).succeeded();

    let permissions = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(folder.join("builds.key"), permissions).expect("a mode");
    let shown = ifunc(folder, &["sign", "-k", "builds.key", "add.so"]);
    shown.failed(1, &["other users may read", "chmod 600"]);
    ifunc(folder, &["sign", "-k", "others.pub", "add.so"]).failed(1, &["line 1", "ifunc-secret-key"]);
}

#[test]
fn clean_removes_what_was_built_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            ("Cargo.toml", "[package]\nname = \"p\"\nedition = \"2024\"\n"),
            ("src/lib.rs", ""),
            ("target/debug/kept", "kept"),
            ("target/ifunc/release/add.so", "12345"),
            ("elsewhere/file", "kept"),
        ],
    );
    let clean = |args: &[&str]| ifunc(folder.path(), &[&["clean"], args].concat());
    let said = clean(&["--dry-run"]).succeeded().err;
    assert!(said.contains("Would remove 1 file,"), "{said}");
    assert!(folder.path().join("target/ifunc/release/add.so").is_file());
    clean(&["--target-dir", "elsewhere"]).failed(2, &["holds nothing that this command has built", "help: "]);
    let said = clean(&[]).succeeded().err;
    assert!(said.contains("Removed 1 file,"), "{said}");
    assert!(!folder.path().join("target/ifunc").exists());
    assert!(folder.path().join("target/debug/kept").is_file());
    assert!(folder.path().join("elsewhere/file").is_file());
    assert!(clean(&[]).succeeded().err.contains("nothing"));
}
