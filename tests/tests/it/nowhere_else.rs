//! The code cannot have come from anywhere but the frame: a target that is one static executable, with no file mapped and
//! no symbol of the ifunc, runs it; and runs what it was changed to while that target ran.

use crate::common::scratch::Scratch;
use crate::common::{Process, connect, static_target, unique_shm};
use object::{Object, ObjectSymbol};

const FIRST: &str = r#"
#![no_std]
use ifunc::prelude::*;

#[derive(Layout)]
#[repr(C)]
pub struct State { pub counter: u64, pub changes: u64 }

#[ifunc]
pub fn shape_shifter(n: u64, state: &mut State) -> u64 { state.counter += n; state.changes += 1; state.counter }
"#;

#[test]
#[ignore = "nightly: compiles the runtime once more, linked statically"]
fn a_static_target_runs_code_that_was_never_in_it() {
    let Some(address) = unique_shm("a static executable opens no library, and so no UCX") else {
        return;
    };
    let executable = static_target();
    let bytes = std::fs::read(&executable).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert_eq!(file.kind(), object::ObjectKind::Dynamic, "static-pie");
    assert!(file.section_by_name(".interp").is_none(), "no loader");
    let symbols: Vec<_> = file
        .symbols()
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .collect();
    assert!(
        symbols.len() > 1000,
        "the executable was not stripped, so that there is something to look at"
    );
    assert!(!symbols.iter().any(|symbol| symbol.contains("shape_shifter")));
    assert!(
        !bytes.windows(13).any(|window| window == b"shape_shifter"),
        "not even the name"
    );

    let mut target = Process::target_from(&executable, &address);
    let source = connect(&address);
    let scratch = Scratch::new("shape-shifter");
    let library = scratch.build(FIRST)("shape_shifter");
    // SAFETY: built above.
    let first = unsafe { source.load_path(&library).unwrap() };
    assert_eq!(
        first.call(&5u64.to_le_bytes()).unwrap().wait().unwrap(),
        5u64.to_le_bytes()
    );
    target.wait_for("counter: 5");

    // Changed and built again while the target runs: the new code runs, under the same name.
    let library =
        scratch.build(&FIRST.replace("state.counter += n", "state.counter = 1000 * n"))("shape_shifter");
    // SAFETY: built above.
    let second = unsafe { source.load_path(&library).unwrap() };
    assert_ne!(first.id(), second.id());
    assert_eq!(
        second.call(&7u64.to_le_bytes()).unwrap().wait().unwrap(),
        7000u64.to_le_bytes()
    );
    target.wait_for("counter: 7000");
    // Both are what they were.
    assert_eq!(
        first.call(&1u64.to_le_bytes()).unwrap().wait().unwrap(),
        7001u64.to_le_bytes()
    );

    let maps = target.maps();
    let executable = executable.canonicalize().unwrap();
    for mapping in &maps {
        assert!(!mapping.is_writable_and_executable(), "{mapping:?}");
        assert!(
            !mapping.is_file() || mapping.name == executable.to_string_lossy(),
            "{mapping:?}"
        );
        // Code; the addresses that it imports; frames; and a bit for each connection that has something.
        let ours = [
            "/memfd:ifunc-code",
            "/memfd:ifunc-got",
            "/memfd:ifunc-shm",
            "/memfd:ifunc-ready",
        ];
        let memfd = mapping.name.starts_with("/memfd:");
        assert!(
            !memfd || ours.iter().any(|name| mapping.name.starts_with(name)),
            "{mapping:?}"
        );
    }
    println!("the target printed: {:?}", target.said);
}
