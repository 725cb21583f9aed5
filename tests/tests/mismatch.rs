//! Types and signatures that differ between source, image and target: refused with both in the message, nothing run.

mod common;

use common::scratch::Scratch;
use common::{Process, connect, library, unique};
use ifunc_rt::{Error, LibraryError, Rejection};
use ifunc_tests_ifuncs::t_add;

const SKEWED: &str = r#"
#![no_std]
use ifunc::prelude::*;

#[derive(Layout)]
#[repr(C)]
pub struct State { pub counter: u64, pub changes: u64 }

#[derive(Layout)]
#[repr(C)]
pub struct Narrow { pub counter: u32, pub changes: u64 }

#[ifunc::import]
unsafe extern "C" {
    safe fn lookup(word: &[u8]) -> u64;
    safe fn nobody_exports_this(n: u64);
}

#[ifunc]
pub fn t_add(delta: u32, state: &mut State) -> u64 { state.counter += u64::from(delta); state.changes += 1; 0 }

#[ifunc]
pub fn skew_target(delta: u64, state: &mut Narrow) -> u64 { state.changes += delta; 0 }

#[ifunc]
pub fn skew_import(word: &str, state: &mut State) -> u64 { state.changes += 1; lookup(word.as_bytes()) }

#[ifunc]
pub fn skew_missing(n: u64, state: &mut State) { state.changes += 1; nobody_exports_this(n) }
"#;

#[test]
fn both_texts_are_shown_and_nothing_is_run() {
    let scratch = Scratch::new("skewed-ifuncs");
    let built = scratch.build(SKEWED);
    let Some(address) = unique() else { return };
    let target = Process::target(&address);
    let source = connect(&address);

    // Source and image.
    match source.register_path::<t_add>(built("t_add")) {
        Err(error @ LibraryError::Type { what: "payload", .. }) => {
            let text = error.to_string();
            assert!(
                text.contains("this program: u64") && text.contains("the library:  u32"),
                "{text}"
            );
            assert!(text.contains("cargo ifunc build"), "{text}");
        }
        other => panic!("{other:?}"),
    }

    let refusal = |name: &str, args: &[u8]| {
        // SAFETY: built above.
        let loaded = unsafe { source.load_path(built(name)).unwrap() };
        match loaded.call(args).unwrap().wait() {
            Err(error @ Error::Rejected { why, .. }) => (why, error.to_string()),
            other => panic!("{other:?}"),
        }
    };
    // Image and target.
    let (why, text) = refusal("skew_target", &1u64.to_le_bytes());
    assert_eq!(why, Rejection::TargetType);
    assert!(
        text.contains("struct Narrow{0:counter:u32,8:changes:u64}[16,8]"),
        "{text}"
    );
    assert!(
        text.contains("struct State{0:counter:u64,8:changes:u64}[16,8]"),
        "{text}"
    );
    // Import and export.
    let (why, text) = refusal("skew_import", b"word");
    assert_eq!(why, Rejection::ImportSignature);
    assert!(text.contains("fn lookup(&[u8])->u64"), "{text}");
    assert!(text.contains("fn lookup(&str)->Option<u64>"), "{text}");
    let (why, text) = refusal("skew_missing", &1u64.to_le_bytes());
    assert_eq!(why, Rejection::MissingImport);
    assert!(text.contains("`nobody_exports_this`"), "{text}");

    // Fire and forget says the same, with the next flush.
    // SAFETY: built above.
    let loaded = unsafe { source.load_path(built("skew_import")).unwrap() };
    loaded.send(b"word").unwrap();
    assert!(matches!(
        source.flush(),
        Err(Error::Rejected {
            why: Rejection::ImportSignature,
            ..
        })
    ));

    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    assert_eq!(add.call(&0).unwrap().wait().unwrap(), 0);
    assert!(
        !target.said.iter().any(|line| line.starts_with("counter")),
        "nothing was run before"
    );
}
