//! `expand` prints what the attributes generate, and only that.

use crate::common::{self, TARGET, ifunc, ifunc_manifest, write};

#[test]
#[ignore = "nightly: compiles the SDK in two more ways"]
fn both_views_and_single_items() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            ("Cargo.toml", &ifunc_manifest("written")),
            (
                "src/lib.rs",
                "#![no_std]\nuse ifunc::prelude::*;\n\
                 #[repr(C)]\n#[derive(Layout)]\npub struct Counters { pub one: u64 }\n\
                 #[ifunc]\npub fn add(delta: u64, counters: &mut Counters) -> u64 { counters.one += delta; counters.one }\n\
                 #[ifunc]\npub fn sub(delta: u64, counters: &mut Counters) { counters.one -= delta; }\n",
            ),
        ],
    );
    let expand = |args: &[&str]| {
        common::ran(
            common::command(folder.path(), &[&["expand"], args].concat()).env("CARGO_TARGET_DIR", TARGET),
        )
    };
    let all = expand(&[]).succeeded().out;
    for text in [
        "impl ::ifunc::Ifunc for add",
        "impl ::ifunc::Ifunc for sub",
        "for Counters",
        "pub enum add {}",
    ] {
        assert!(all.contains(text), "{text} in\n{all}");
    }
    assert!(
        !all.contains("counters.one += delta"),
        "the function itself is the author's\n{all}"
    );
    assert!(!all.contains('\x1b'), "colours without a terminal");

    let add = expand(&["add"]).succeeded().out;
    assert!(
        add.contains("impl ::ifunc::Ifunc for add") && !add.contains("for sub"),
        "{add}"
    );
    assert!(
        !add.contains("add_payload_init"),
        "no entries outside of images\n{add}"
    );

    let image = expand(&["add", "--image", "--color", "always"]).succeeded().out;
    for text in ["add_main", "add_payload_init", "\x1b["] {
        assert!(image.contains(text), "{text} in\n{image}");
    }
    let whole = expand(&["--all"]).succeeded().out;
    assert!(whole.contains("counters.one += delta"), "{whole}");
    expand(&["absent"]).failed(
        1,
        &[
            "generated nothing for `absent`",
            "help: there are: ",
            "`add`",
            "`sub`",
        ],
    );
    expand(&["add", "--all"]).failed(2, &["cannot be used with"]);
}

#[test]
fn a_workspace_without_ifuncs_gets_help() {
    let folder = tempfile::tempdir().expect("folder");
    write(
        folder.path(),
        &[
            ("Cargo.toml", "[package]\nname = \"plain\"\nedition = \"2024\"\n"),
            ("src/lib.rs", ""),
        ],
    );
    ifunc(folder.path(), &["expand"]).failed(1, &["depends on `ifunc`", "cargo ifunc new NAME"]);
    ifunc(folder.path(), &["test"]).failed(1, &["depends on `ifunc`", "cargo ifunc new NAME"]);
    ifunc(folder.path(), &["check"]).failed(1, &["depends on `ifunc`", "cargo ifunc new NAME"]);
    ifunc(folder.path(), &["test", "-p", "absent"]).failed(1, &["`absent` is not a member"]);
    ifunc(folder.path(), &["check", "-p", "absent"]).failed(1, &["`absent` is not a member"]);
    // A member is not said to be none, and nothing is to be added that cannot be: the crates of this checkout are not published.
    let why = "package `plain` holds no ifuncs: it does not depend on `ifunc`";
    ifunc(folder.path(), &["check", "-p", "plain"]).failed(1, &[why]);
    ifunc(folder.path(), &["check"]).failed(1, &["`cargo add --path /"]);
}
