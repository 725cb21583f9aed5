//! Packages that cannot travel because of a dependency: the error names the chain that brings it, and where to cut it.

use crate::common::loaded::Loaded;
use crate::common::workspace::{DEPENDS, Workspace};

const ADD: &str = "#![no_std]
use ifunc::prelude::*;
#[ifunc]
pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter }
";

/// Builds `chained`, which uses the first crate, and returns the error.
fn refusal_of_chain(features: &str, crates: &[(&str, &str, &str)]) -> String {
    let workspace = Workspace::new(&["chained"]);
    let (first, _, _) = crates[0];
    let manifest = format!("{DEPENDS}\n{first} = {{ path = \"../{first}\"{features} }}\n");
    let source = ADD.replace("fn add", "fn chained").replace(
        "*counter += delta",
        &format!("*counter += {}::value(delta)", first.replace('-', "_")),
    );
    workspace.package("chained", &manifest, &source);
    for (name, manifest, source) in crates {
        workspace.package(name, manifest, source);
    }
    workspace.refusal()
}

#[test]
fn a_crate_that_uses_std_is_named_with_the_chain_that_brings_it() {
    const STD: &str = "pub fn value(x: u64) -> u64 { String::from(\"std\").len() as u64 + x }";
    const MAYBE: &str = "#![cfg_attr(not(feature = \"std\"), no_std)]\npub fn value(x: u64) -> u64 { x }";
    const PASSES: &str = "#![no_std]\npub fn value(x: u64) -> u64 { NEXT::value(x) }";
    const DEFAULT: &str = "[features]\ndefault = [\"more\"]\nmore = [\"std\"]\nstd = []\n";
    let passes = |next: &str| PASSES.replace("NEXT", next);
    let says = |refusal: &str, texts: &[&str]| {
        for text in texts {
            assert!(refusal.contains(text), "`{text}` is not in:\n{refusal}");
        }
    };

    let refusal = refusal_of_chain("", &[("with-std", "", STD)]);
    says(
        &refusal,
        &[
            "could not compile ifunc package `chained`",
            "help: `chained` → `with-std 0.1.0`: `with-std` uses std, which cannot travel",
            "help: `with-std` has no feature `std` to switch off: leave `with-std` out of `chained`",
        ],
    );
    let refusal = refusal_of_chain("", &[("by-default", DEFAULT, MAYBE)]);
    says(
        &refusal,
        &[
            "help: `chained` → `by-default 0.1.0`: `by-default` uses std",
            "help: `std` is a default feature of `by-default`: write `by-default = { .., default-features = false }` in the manifest of `chained`",
        ],
    );
    let refusal = refusal_of_chain(
        ", default-features = false, features = [\"std\"]",
        &[("asked-for", DEFAULT, MAYBE)],
    );
    says(
        &refusal,
        &[
            "help: the manifest of `chained` asks for the feature `std` of `asked-for`: leave it out of `features`",
        ],
    );
    // A chain of two crates; a feature of the first switches on that of the second.
    let passes_on = "[features]\ndefault = [\"std\"]\nstd = [\"deep/std\"]\n[dependencies]\ndeep = { path = \"../deep\", default-features = false }\n";
    let refusal = refusal_of_chain(
        "",
        &[
            ("passes-on", passes_on, &passes("deep")),
            ("deep", DEFAULT, MAYBE),
        ],
    );
    says(
        &refusal,
        &[
            "help: `chained` → `passes-on 0.1.0` → `deep 0.1.0`: `deep` uses std",
            "help: `std` is a default feature of `passes-on`: write `passes-on = { .., default-features = false }`",
        ],
    );
    // The same, by a feature of another name; and by the manifest of a crate of another author.
    let by_feature = "[features]\nfast = [\"deep/std\"]\n[dependencies]\ndeep = { path = \"../deep\", default-features = false }\n";
    let refusal = refusal_of_chain(
        ", features = [\"fast\"]",
        &[
            ("by-feature", by_feature, &passes("deep")),
            ("deep", DEFAULT, MAYBE),
        ],
    );
    says(
        &refusal,
        &["help: the feature `fast` of `by-feature` switches the feature `std` of `deep` on: leave it out"],
    );
    let of_others = "[dependencies]\ndeep = { path = \"../deep\" }\n";
    let refusal = refusal_of_chain(
        "",
        &[
            ("of-others", of_others, &passes("deep")),
            ("deep", DEFAULT, MAYBE),
        ],
    );
    says(
        &refusal,
        &[
            "the manifest of `of-others` would need `deep = { .., default-features = false }`",
            "leave `of-others` out of `chained`",
        ],
    );
}

/// Like [`refusal_of_chain`], with two crates `deep`: a direct one, and one through `between`.
fn refusal_of_two(nearer: &str, farther: &str) -> String {
    let workspace = Workspace::new(&["chained-twice"]);
    // A workspace has one member of a name.
    let root = workspace.dir.path().join("Cargo.toml");
    let text = std::fs::read_to_string(&root).unwrap();
    std::fs::write(&root, text + "exclude = [\"nearer\", \"farther\"]\n").unwrap();
    let manifest =
        format!("{DEPENDS}\nbetween = {{ path = \"../between\" }}\ndeep = {{ path = \"../nearer\" }}\n");
    let source = ADD.replace("fn add", "fn chained_twice").replace(
        "*counter += delta",
        "*counter += deep::value(between::value(delta))",
    );
    workspace.package("chained-twice", &manifest, &source);
    workspace.package(
        "between",
        "[dependencies]\ndeep = { path = \"../farther\" }\n",
        "#![no_std]\npub fn value(x: u64) -> u64 { deep::value(x) }",
    );
    for (name, version, source) in [("nearer", "1.2.3", nearer), ("farther", "2.0.0", farther)] {
        let manifest = workspace.package(name, "", source).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let text = text.replace(name, "deep").replace("0.1.0", version);
        std::fs::write(manifest, text).unwrap();
    }
    workspace.refusal()
}

#[test]
fn of_several_versions_the_one_that_uses_std_is_named() {
    const NONE: &str = "#![no_std]\npub fn value(x: u64) -> u64 { x }";
    const STD: &str = "pub fn value(x: u64) -> u64 { String::from(\"std\").len() as u64 + x }";
    let near = "`chained-twice` → `deep 1.2.3`";
    let far = "`chained-twice` → `between 0.1.0` → `deep 2.0.0`";
    let refusal = refusal_of_two(NONE, STD);
    let says = format!("help: {far}: `deep` uses std, which cannot travel");
    assert!(refusal.contains(&says) && !refusal.contains(near), "{refusal}");

    // If neither has `#![no_std]`, both are named.
    let refusal = refusal_of_two(STD, STD);
    for text in [
        format!("help: {near}, and {far}: at least one of these crates `deep` uses std"),
        "help: as to `deep 1.2.3`: `deep` has no feature `std` to switch off".into(),
        "help: as to `deep 2.0.0`: `deep` has no feature `std` to switch off: leave `between` out".into(),
    ] {
        assert!(refusal.contains(&text), "`{text}` is not in:\n{refusal}");
    }
}

#[test]
fn what_only_the_sdk_may_bring_is_named_with_the_crate_that_brings_it_too() {
    let handler = "#![no_std]\npub fn value(x: u64) -> u64 { x }\n#[panic_handler]\nfn mine(_: &core::panic::PanicInfo) -> ! { loop {} }\n";
    let refusal = refusal_of_chain("", &[("handler", "", handler)]);
    let says =
        "help: `chained` → `handler 0.1.0`: `handler` has a `#[panic_handler]` of its own: leave it out";
    assert!(refusal.contains(says), "{refusal}");

    // Macros run at compile time and may use std.
    let workspace = Workspace::new(&["with-macro"]);
    let manifest = format!("{DEPENDS}\nlittle-macro = {{ path = \"../little-macro\" }}\n");
    let source = ADD
        .replace("fn add", "fn with_macro")
        .replace("+= delta", "+= little_macro::seven!() * delta");
    workspace.package("with-macro", &manifest, &source);
    workspace.package(
        "little-macro",
        "[lib]\nproc-macro = true\n",
        "#[proc_macro]\npub fn seven(_: proc_macro::TokenStream) -> proc_macro::TokenStream { String::from(\"7\").parse().unwrap() }",
    );
    let built = workspace.build_only(&["with-macro"]).unwrap();
    let mut counter = 0_u64;
    let loaded = Loaded::new(&built[0].image, |_| None).unwrap();
    // SAFETY: the payload is a `u64`, the target too.
    unsafe { loaded.run(&mut 5_u64.to_le_bytes(), &mut counter) };
    assert_eq!(counter, 35);
}
