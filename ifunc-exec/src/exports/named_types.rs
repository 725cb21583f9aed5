//! Names in signatures stand for one type of this process on each target.

use std::sync::Arc;

use ifunc::host::{Export, NameConflict, NamedType};

use super::ExportError;
use crate::tests::{Events, options};
use crate::{HostSymbols, ImageExecutor, SetupError, Symbol};

#[derive(ifunc::Opaque)]
#[opaque("named/1")]
struct One(#[allow(dead_code, reason = "it has a size")] u64);

#[derive(ifunc::Opaque)]
#[opaque("named/1")]
struct Other(#[allow(dead_code, reason = "it has a size")] [u64; 4]);

extern "C" fn never_called() {}

/// A function that takes a `T`, as `#[ifunc::export]` would describe it.
fn takes<T: ifunc::TargetArgs + 'static>(name: &'static str) -> Export {
    // SAFETY: never called.
    unsafe { Export::function(name, "fn takes(&opaque named/1)", "", never_called as *const ()) }
        .with_types(const { &[<T as ifunc::TargetArgs>::named_type] })
}

fn executor_of(exports: &[Export]) -> Result<ImageExecutor, SetupError> {
    let symbols = HostSymbols::with(exports.iter().map(Symbol::from)).unwrap();
    ImageExecutor::new(options(), symbols, Arc::<Events>::default())
}

#[track_caller]
fn names_both(conflict: &NameConflict) {
    let error = conflict.to_string();
    for part in ["`named/1`", "named_types::One`", "named_types::Other`", "help: "] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn exports_of_one_target_agree() {
    executor_of(&[takes::<One>("a"), takes::<One>("b")]).unwrap();
    let error = executor_of(&[takes::<One>("a"), takes::<Other>("b")]).unwrap_err();
    let SetupError::Names(conflict) = &error else {
        panic!("{error:?}")
    };
    names_both(conflict);
    assert!(error.to_string().contains("the export `b`"), "{error}");
}

#[test]
fn a_name_keeps_its_type_while_exports_change() {
    let executor = executor_of(&[takes::<One>("a")]).unwrap();
    let exports = executor.exports();
    exports.add(takes::<One>("b")).unwrap();
    let refused = |change: Result<(), ExportError>| match change {
        Err(ExportError::Names(conflict)) => names_both(&conflict),
        other => panic!("{other:?}"),
    };
    refused(exports.add(takes::<Other>("c")));
    refused(exports.replace(takes::<Other>("a")));
    // An ifunc may hold what it got from an export that was removed.
    exports.remove("a").unwrap();
    exports.remove("b").unwrap();
    refused(exports.add(takes::<Other>("a")));
    let named = |named: Option<NamedType>| executor.name_type(named.unwrap(), "the target arguments");
    named(<One as ifunc::TargetArgs>::named_type()).unwrap();
    names_both(&named(<Other as ifunc::TargetArgs>::named_type()).unwrap_err());
    // Nothing of a refused update is noted.
    let other: &'static [fn() -> Option<NamedType>] = &[|| Some(NamedType::of::<Other>("opaque named/2"))];
    // SAFETY: never called.
    let new = unsafe { Export::function("d", "fn d(&opaque named/2)", "", never_called as *const ()) };
    refused(exports.update(|update| {
        update.add(new.with_types(other));
        update.add(takes::<Other>("c"));
    }));
    executor
        .name_type(NamedType::of::<One>("opaque named/2"), "it")
        .unwrap();
}
