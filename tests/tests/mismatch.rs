//! Types and signatures that differ between source, image and target: refused with both in the message, nothing run.

mod common;

use common::scratch::Scratch;
use common::{Process, connect, library, unique};
use ifunc_rt::{Error, LibraryError, Policy, Rejection, Source, Target};
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

/// The crate of ifuncs; `GROWN` stands for what a later build adds.
const EVOLVING: &str = r#"
#![no_std]
use ifunc::prelude::*;

#[derive(Layout, Clone, Copy)]
#[repr(i32)]
#[non_exhaustive]
pub enum FindError {
    Empty = 1,
    // GROWN Busy = 2,
    #[layout(other)]
    Other = -1,
}

#[derive(Layout)]
#[repr(C)]
pub struct Counted {
    pub counter: u64,
    // GROWN pub changes: u64,
}

#[derive(Layout)]
#[repr(C)]
pub struct Settings {
    pub step: u32,
    pub limit: u32,
    // GROWN pub name: [u8; 8],
}

#[ifunc::import]
unsafe extern "C" {
    safe fn find(n: u64) -> Result<u64, FindError>;
    safe fn settings(of: &u64) -> &Settings;
    safe fn takes(settings: &Settings) -> u32;
    safe static SETTINGS: Settings;
}

#[ifunc]
pub fn e_find(n: u64, counted: &mut Counted) -> i64 {
    counted.counter += 1;
    // GROWN counted.changes += 1;
    match find(n) {
        Ok(found) => found as i64,
        Err(FindError::Empty) => -1,
        Err(FindError::Other) => -2,
        // GROWN Err(FindError::Busy) => -3,
    }
}

#[ifunc]
pub fn e_settings(n: u64, _: &Counted) -> u32 {
    settings(&n).limit + SETTINGS.step
}

#[ifunc]
pub fn e_takes(_: (), _: &Counted) -> u32 { takes(&SETTINGS) }
"#;

/// A host whose types have grown since the ifuncs were built, and one whose types have not.
mod evolving {
    use ifunc::Layout;

    #[derive(Layout, Clone, Copy)]
    #[repr(i32)]
    #[non_exhaustive]
    pub(super) enum FindError {
        Empty = 1,
        Busy = 2,
        #[layout(other)]
        #[allow(dead_code, reason = "values of other builds")]
        Other = -1,
    }

    #[derive(Layout, Default)]
    #[layout(grows)]
    #[repr(C)]
    pub(super) struct Counted {
        pub(super) counter: u64,
        pub(super) changes: u64,
    }

    /// As it was.
    pub(super) mod before {
        #[derive(ifunc::Layout, Default)]
        #[repr(C)]
        pub(crate) struct Counted {
            pub(crate) counter: u64,
        }
    }

    /// Has another name than in the ifuncs, too.
    #[derive(Layout)]
    #[layout(grows, name = "Settings")]
    #[repr(C)]
    struct Options {
        step: u32,
        limit: u32,
        name: [u8; 8],
    }

    #[ifunc::export]
    static SETTINGS: Options = Options {
        step: 3,
        limit: 40,
        name: *b"settings",
    };

    #[ifunc::export]
    fn settings(_: &u64) -> &Options {
        &SETTINGS
    }

    #[ifunc::export]
    fn takes(options: &Options) -> u32 {
        u32::from(options.name[0])
    }

    #[ifunc::export]
    fn find(n: u64) -> Result<u64, FindError> {
        match n {
            0 => Err(FindError::Empty),
            1 => Err(FindError::Busy),
            n => Ok(n * 2),
        }
    }
}

#[test]
#[ignore = "nightly: builds a package of ifuncs twice"]
fn a_host_that_grew_serves_what_was_built_before() {
    let scratch = Scratch::new("evolving-ifuncs");
    // The bytes of the libraries: the second build replaces the files.
    let build = |source: &str| {
        let built = scratch.build(source);
        ["e_find", "e_settings", "e_takes"].map(|name| (name, std::fs::read(built(name)).unwrap()))
    };
    let before = build(EVOLVING);
    let after = build(&EVOLVING.replace("// GROWN ", ""));

    fn serve<T: ifunc::TargetArgs + Default + Send + 'static>(name: &str) -> (Source, ifunc_rt::Serving<T>) {
        let address = format!("loopback:evolving-{name}-{}", std::process::id());
        // SAFETY: only this test knows the address.
        let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
        let serving = builder.listen(&address).unwrap().spawn(T::default()).unwrap();
        (Source::connect(&address).unwrap(), serving)
    }
    type Libraries = [(&'static str, Vec<u8>); 3];
    let call = |source: &Source, libraries: &Libraries, name: &str, payload: &[u8]| {
        let (_, library) = libraries.iter().find(|(known, _)| *known == name).unwrap();
        source
            .load_entry(library, name)
            .unwrap()
            .call(payload)
            .unwrap()
            .wait()
    };
    let find = |source: &Source, libraries: &Libraries, n: u64| {
        let answer = call(source, libraries, "e_find", &n.to_le_bytes());
        answer.map(|answer| i64::from_le_bytes(answer.try_into().unwrap()))
    };
    let refusal = |result: Result<Vec<u8>, Error>| match result {
        Err(error @ Error::Rejected { why, .. }) => (why, error.to_string()),
        other => panic!("{other:?}"),
    };

    let (source, serving) = serve::<evolving::Counted>("grown");
    for (n, old, new) in [(0, -1, -1), (1, -2, -3), (4, 8, 8)] {
        assert_eq!(find(&source, &before, n).unwrap(), old);
        assert_eq!(find(&source, &after, n).unwrap(), new);
    }
    for libraries in [&before, &after] {
        let answer = call(&source, libraries, "e_settings", &[0; 8]).unwrap();
        assert_eq!(answer, 43u32.to_le_bytes());
    }
    // What the ifunc gives to the host has the fields that its build knows.
    let (why, text) = refusal(call(&source, &before, "e_takes", &[]));
    assert_eq!(why, Rejection::ImportSignature);
    assert!(text.contains("0:step:u32,4:limit:u32}[8,4]"), "{text}");
    assert!(text.contains("4:limit:u32,8:name:[u8;8]}[16,4]"), "{text}");
    let answer = call(&source, &after, "e_takes", &[]).unwrap();
    assert_eq!(answer, u32::from(b's').to_le_bytes());
    drop(source);
    let counted = serving.stop().unwrap();
    assert_eq!((counted.counter, counted.changes), (6, 3));

    // An ifunc that knows more than the host is refused.
    let (source, serving) = serve::<evolving::before::Counted>("before");
    assert_eq!(find(&source, &before, 1).unwrap(), -2);
    let (why, text) = refusal(call(&source, &after, "e_find", &[0; 8]));
    assert_eq!(why, Rejection::TargetType);
    assert!(
        text.contains("struct Counted{0:counter:u64,8:changes:u64}[16,8]"),
        "{text}"
    );
    assert!(text.contains("struct Counted{0:counter:u64}[8,8]"), "{text}");
    drop(source);
    assert_eq!(serving.stop().unwrap().counter, 1);
}
