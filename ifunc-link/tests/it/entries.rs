//! Images with several entries: ifuncs that refer to each other are linked into one image.

use std::fs;
use std::path::Path;

use crate::common::sources::{Compiler, Machine, compilers, compilers_for, run};
use ifunc_abi::image::{EntryFlags, Image, ImageFlags};
use ifunc_link::{Ifunc, Imports, Input, LinkError, Linker, Request, Role, Rule};

const PRELUDE: &str = "#include <stdint.h>
#include <stddef.h>
#define MAIN(name) uint32_t name##_main(uint64_t *payload, size_t n, uint64_t *out, void *context)
uint32_t send_to(const void *entry);
MAIN(ping); MAIN(pong); MAIN(leaf); MAIN(apart);
";

/// Compiled files, with every compiler that is there.
fn with_objects(files: &[(&str, &str)], flags: &[&str], check: impl Fn(&[(String, Vec<u8>)])) {
    let cross = compilers_for(Machine::AArch64);
    for &compiler in compilers().iter().chain(cross) {
        let dir = tempfile::tempdir().unwrap();
        let compile = |(name, text): &(&str, &str)| {
            let path = |extension: &str| dir.path().join(name).with_extension(extension);
            fs::write(path("c"), [PRELUDE, text].concat()).unwrap();
            object_of(compiler, flags, &path("c"), &path("o"));
            (format!("{name}.o"), fs::read(path("o")).unwrap())
        };
        let objects: Vec<_> = files.iter().map(compile).collect();
        check(&objects);
    }
}

fn object_of(compiler: Compiler, flags: &[&str], source: &Path, object: &Path) {
    run(compiler
        .command("c")
        .args(["-c", "-fPIC", "-Wall", "-Werror", "-Wno-unused-parameter"])
        .args(flags)
        .arg(source)
        .arg("-o")
        .arg(object));
}

/// The image of an ifunc; the objects in `own` are those of its file and helpers.
fn link(root: &str, own: &[usize], objects: &[(String, Vec<u8>)]) -> Result<Vec<u8>, LinkError> {
    let inputs: Vec<_> = objects
        .iter()
        .enumerate()
        .map(|(index, (name, data))| Input {
            name,
            data,
            role: if own.contains(&index) {
                Role::User
            } else {
                Role::Neighbour
            },
        })
        .collect();
    let ifunc = |name| Ifunc {
        payload_align: if name == "pong" { 8 } else { 1 },
        flags: EntryFlags::NONE.union_if(name == "leaf", EntryFlags::IDEMPOTENT),
        is_pinned: name == "leaf",
        ..Ifunc::new(name)
    };
    let request = Request {
        others: ["leaf", "ping", "apart", "pong"].map(ifunc).into(),
        ..Request::of(ifunc(root), Imports::Any)
    };
    let linker = Linker::open(&inputs).unwrap();
    let image = linker.link(&request)?;
    assert_eq!(linker.link(&request)?, image, "two links of one linker differ");
    Ok(image)
}

fn entries(image: &[u8]) -> Vec<&str> {
    let image = Image::parse(image).unwrap();
    image.entries().map(|entry| entry.name).collect()
}

const PING: &str = "MAIN(ping) { return send_to(pong_main) + 1; }";
const PONG: &str = "MAIN(pong) { return send_to(ping_main) + 2; }";
const LEAF: &str = "MAIN(leaf) { return n ? 3 : 4; }";
const APART: &str = "MAIN(apart) { return send_to((void *)0); }";

#[test]
fn a_reference_makes_an_entry_and_only_where_it_is() {
    let text = format!("{LEAF}\n{APART}\nMAIN(ping) {{ return send_to(leaf_main); }}");
    for flags in [
        &["-O2", "-ffunction-sections"][..],
        &["-O0", "-ffunction-sections"],
    ] {
        with_objects(&[("all", &text)], flags, |objects| {
            let image = link("ping", &[0], objects).unwrap();
            assert_eq!(entries(&image), ["leaf", "ping"]);
            let parsed = Image::parse(&image).unwrap();
            let (_, leaf) = parsed.entry("leaf").unwrap();
            let (_, ping) = parsed.entry("ping").unwrap();
            assert_ne!(leaf.main, ping.main);
            assert_eq!(
                (leaf.flags, ping.flags),
                (EntryFlags::IDEMPOTENT, EntryFlags::NONE)
            );
            assert!(
                parsed.flags().contains(ImageFlags::PINNED),
                "by one of its entries"
            );
            assert_eq!(
                parsed.imports().map(|import| import.symbol).collect::<Vec<_>>(),
                ["send_to"]
            );
            for alone in ["leaf", "apart"] {
                assert_eq!(entries(&link(alone, &[0], objects).unwrap()), [alone]);
            }
        });
    }
}

#[test]
fn a_cycle_is_one_image_whichever_of_its_ifuncs_is_built() {
    let helper = "uint32_t help(void) { return send_to(leaf_main); }";
    let ping = format!("uint32_t help(void);\n{PING}\nvoid unused(void) {{ help(); }}");
    let pong = "uint32_t help(void);\nMAIN(pong) { return send_to(ping_main) + help(); }";
    let files = [
        ("ping", &*ping),
        ("leaf", LEAF),
        ("helper", helper),
        ("pong", pong),
    ];
    for flags in [&["-O2"][..], &["-O0", "-g"]] {
        with_objects(&files, flags, |objects| {
            let of_ping = link("ping", &[0, 2], objects).unwrap();
            let of_pong = link("pong", &[3, 2], objects).unwrap();
            assert_eq!(entries(&of_ping), ["leaf", "ping", "pong"]);
            assert!(of_ping == of_pong, "two images of one cycle");
            let aligned: Vec<_> = Image::parse(&of_ping)
                .unwrap()
                .entries()
                .map(|entry| entry.payload_align)
                .collect();
            assert_eq!(aligned, [1, 1, 8]);
            assert_eq!(entries(&link("leaf", &[1, 2], objects).unwrap()), ["leaf"]);
        });
    }
}

#[test]
fn data_that_names_an_ifunc_reaches_it() {
    let text = format!(
        "{LEAF}\n{PONG}
        static const struct {{ int number; void *entry; }} table[] = {{ {{ 1, pong_main }}, {{ 2, leaf_main }} }};
        MAIN(ping) {{ return send_to(table[n & 1].entry); }}"
    );
    with_objects(&[("all", &text)], &["-O2"], |objects| {
        let image = link("ping", &[0], objects).unwrap();
        assert_eq!(entries(&image), ["leaf", "ping", "pong"]);
        assert!(image == link("pong", &[0], objects).unwrap());
    });
}

#[test]
fn an_alias_of_an_entry_is_refused() {
    let text = "MAIN(pong) { return send_to(pong_main); }
        uint32_t ping_main(uint64_t *, size_t, uint64_t *, void *) __attribute__((alias(\"pong_main\")));
        MAIN(leaf) { return send_to(ping_main) + send_to(pong_main); }";
    with_objects(&[("all", text)], &["-O1"], |objects| {
        let error = link("leaf", &[0], objects).unwrap_err();
        assert_eq!(error.reasons[0].rule, Rule::SameEntry);
        let error = error.to_string();
        assert!(
            error.contains("two entries that are one function: `leaf` (`ping_main` and `pong_main`)")
                && error.contains("by their addresses"),
            "{error}"
        );
    });
}

#[test]
fn what_another_entry_may_not_hold_is_refused() {
    let text = format!("{PING}\nstatic __thread int local;\nMAIN(pong) {{ return local++; }}");
    with_objects(&[("all", &text)], &["-O2", "-ffunction-sections"], |objects| {
        let error = link("ping", &[0], objects).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot link the image of `ping`: 1 reason\n  thread-local variable: `local`")
                && error.contains("referenced by `pong_main` in all.o"),
            "{error}"
        );
    });
}

/// One ifunc that refers to `count - 1` others.
fn refers_to_all(count: usize) -> Result<Vec<u8>, LinkError> {
    let names: Vec<String> = (1..count).map(|number| format!("f{number:02}")).collect();
    let mut text: String = names
        .iter()
        .map(|name| format!("MAIN({name}) {{ return send_to((void *)payload) + sizeof \"{name}\"; }}\n"))
        .collect();
    text.push_str("MAIN(f00) { return 0");
    text.extend(names.iter().map(|name| format!(" + send_to({name}_main)")));
    text.push_str("; }\n");
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("all.c"), dir.path().join("all.o"));
    fs::write(&source, [PRELUDE, &text].concat()).unwrap();
    object_of(compilers()[0], &["-O1", "-ffunction-sections"], &source, &object);
    let data = fs::read(object).unwrap();
    let input = Input {
        name: "all.o",
        data: &data,
        role: Role::User,
    };
    let request = Request {
        others: names.iter().map(|name| Ifunc::new(name)).collect(),
        ..Request::of(Ifunc::new("f00"), Imports::Any)
    };
    Linker::open(&[input]).unwrap().link(&request)
}

#[test]
fn an_image_has_at_most_64_entries() {
    assert_eq!(entries(&refers_to_all(64).unwrap()).len(), 64);
    let error = refers_to_all(65).unwrap_err();
    assert_eq!(error.reasons[0].rule, Rule::TooManyEntries);
    let text = error.to_string();
    assert!(
        text.contains("too many entries: `f00` (65, an image has at most 64)")
            && text.contains("help: an ifunc that refers to another one is linked with it into one image"),
        "{text}"
    );
}
