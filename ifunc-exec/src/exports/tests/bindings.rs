//! What installed images are bound to after a change, and which changes are refused.

use std::sync::Arc;

use ifunc::host::GateState;
use ifunc_abi::image::{ImageFlags, ImageParts, ImportFlags, Relocation};
use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

use super::version::{LEVEL, Version, reads_versions};
use super::{finds, rejected, run, variable};
use crate::exports::ExportError;
use crate::tests::{executor, install};
use crate::{Executor, ImageExecutor, InstalledEntry, InstalledImage, Symbol};

#[test]
fn what_is_removed_ends_the_images_that_use_it_until_it_comes_back() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let alive = Arc::default();
    let first = Version::new(1, &alive);
    first
        .symbols()
        .into_iter()
        .for_each(|symbol| exports.add(symbol).unwrap());
    let parts = reads_versions();
    let reads = install(&executor, &parts).unwrap();
    let mut thread = executor.thread().unwrap();
    exports.remove("level").unwrap();
    assert_eq!(
        rejected(run(&mut thread, &reads), Rejection::MissingImport),
        "level"
    );
    let refusal = install(&executor, &parts).unwrap_err();
    assert_eq!(refusal, Refusal::new(Rejection::MissingImport, "level"));
    assert!(matches!(
        exports.remove("level"),
        Err(ExportError::NotExported { .. })
    ));
    // Of another type: of no use to that image.
    let (other, _) = variable("level", "static level:u32");
    exports.add(other).unwrap();
    let why = rejected(run(&mut thread, &reads), Rejection::ImportSignature);
    assert_eq!(why, "level static level:u32");
    let [_, level] = Version::new(2, &alive).symbols();
    exports
        .update(|update| {
            update.remove("level");
            update.add(level);
        })
        .unwrap();
    assert_eq!(run(&mut thread, &reads), Ok(vec![1, 2]));
    // What no connection has bound goes, and does not come back as it was.
    drop(reads);
    exports.remove("version").unwrap();
    assert_eq!(executor.image_count(), 0);
}

#[test]
fn a_replacement_of_another_type_is_refused_with_both_texts() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let (level, at) = variable("level", LEVEL);
    exports.add(level.clone()).unwrap();
    let finds = install(&executor, &finds("level", LEVEL, ImportFlags::DATA)).unwrap();
    let (other, _) = variable("level", "static level:u32");
    let error = exports.replace(other).unwrap_err();
    assert!(
        matches!(&error, ExportError::Signature { name, .. } if name == "level"),
        "{error:?}"
    );
    let error = error.to_string();
    assert!(
        error.contains(LEVEL) && error.contains("static level:u32") && error.contains("help: "),
        "{error}"
    );
    // SAFETY: never read.
    let untyped = unsafe { Symbol::untyped("level", std::ptr::null()) };
    let error = exports.replace(untyped.clone()).unwrap_err().to_string();
    assert!(error.contains(LEVEL) && error.contains("not stated"), "{error}");
    assert!(matches!(exports.add(level), Err(ExportError::Exists { .. })));
    assert!(matches!(
        exports.replace(untyped.named("levels")),
        Err(ExportError::NotExported { .. })
    ));
    for name in ["memcpy", "__ifunc_panic"] {
        assert!(matches!(exports.remove(name), Err(ExportError::OfRuntime { .. })));
    }
    // All of an update, or nothing of it.
    let error = exports.update(|update| {
        update.replace(variable("level", LEVEL).0);
        update.remove("levels");
    });
    assert!(matches!(error, Err(ExportError::NotExported { .. })));
    assert_eq!(run(&mut executor.thread().unwrap(), &finds), Ok(vec![at]));
}

#[test]
fn a_type_that_becomes_known_must_be_that_of_the_images() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    // SAFETY: never read.
    exports
        .add(unsafe { Symbol::untyped("level", std::ptr::null()) })
        .unwrap();
    let _finds = install(&executor, &finds("level", LEVEL, ImportFlags::DATA)).unwrap();
    let error = exports
        .replace(variable("level", "static level:u32").0)
        .unwrap_err();
    assert!(
        matches!(&error, ExportError::Image { image, .. } if image == "finds"),
        "{error}"
    );
    exports.replace(variable("level", LEVEL).0).unwrap();
}

#[test]
fn a_weak_import_is_bound_as_soon_as_there_is_one() {
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    let finds = install(&executor, &finds("level", "", ImportFlags::WEAK)).unwrap();
    let mut thread = executor.thread().unwrap();
    assert_eq!(run(&mut thread, &finds), Ok(vec![0]));
    let (level, at) = variable("level", LEVEL);
    exports.add(level).unwrap();
    assert_eq!(run(&mut thread, &finds), Ok(vec![at]));
    exports.remove("level").unwrap();
    assert_eq!(run(&mut thread, &finds), Ok(vec![0]));
}

#[test]
fn an_address_in_static_data_is_not_replaced_while_the_image_is_bound() {
    let (executor, events) = executor(1 << 16, 8);
    let exports = executor.exports();
    exports.add(variable("level", LEVEL).0).unwrap();
    let parts = ImageParts {
        relocations: vec![Relocation::Import {
            offset: 0x28,
            import: 0,
            addend: 0,
        }],
        ..finds("level", LEVEL, ImportFlags::DATA)
    };
    let mut parts = parts;
    parts.rx.resize(0x30, 0);
    let holds = install(&executor, &parts).unwrap();
    for change in [
        exports.replace(variable("level", LEVEL).0),
        exports.remove("level"),
    ] {
        let error = change.unwrap_err();
        assert!(
            matches!(&error, ExportError::AddressInData { images, .. } if images == &["finds"]),
            "{error}"
        );
    }
    drop(holds);
    let (level, at) = variable("level", LEVEL);
    exports.replace(level).unwrap();
    assert_eq!(*events.0.lock().unwrap(), ["+finds", "-"]);
    let again = install(&executor, &parts).unwrap();
    assert_eq!(run(&mut executor.thread().unwrap(), &again), Ok(vec![at]));
}

/// What passes the gate, and what every target provides, computes as before. Anything else may be `fesetround`.
#[test]
fn what_an_image_calls_without_the_gate_may_set_the_control_of_floats() {
    #[ifunc::export]
    fn passes_the_gate(x: u64) -> u64 {
        x
    }
    const TEXT: &str = "fn passes_the_gate(u64)->u64";
    let sets_now = |entry: &InstalledEntry| entry.entrance.first_side() == GateState::first_side(true);
    let sets = |image: &Arc<InstalledImage>| {
        let entry = ImageExecutor::entries(image).next().unwrap();
        (sets_now(&entry), entry)
    };
    let (executor, _) = executor(1 << 16, 8);
    let exports = executor.exports();
    // SAFETY: never called.
    exports
        .add(unsafe { Symbol::untyped("unguarded", std::ptr::dangling()) })
        .unwrap();
    for (symbol, text, flags, expected) in [
        ("passes_the_gate", TEXT, ImageFlags::KEEPS_FLOAT_CONTROL, false),
        ("passes_the_gate", TEXT, ImageFlags::NONE, true),
        ("memcpy", "", ImageFlags::KEEPS_FLOAT_CONTROL, false),
        ("unguarded", "", ImageFlags::KEEPS_FLOAT_CONTROL, true),
    ] {
        let parts = ImageParts {
            flags,
            ..finds(symbol, text, ImportFlags::FUNCTION)
        };
        let image = install(&executor, &parts).unwrap();
        assert_eq!(sets(&image).0, expected, "{symbol} {flags:?}");
    }
    // An export is replaced by what does not pass the gate, as those of images do not.
    let parts = ImageParts {
        flags: ImageFlags::KEEPS_FLOAT_CONTROL,
        ..finds("passes_the_gate", TEXT, ImportFlags::FUNCTION)
    };
    let image = install(&executor, &parts).unwrap();
    let (before, entry) = sets(&image);
    // SAFETY: never called.
    let replacement = unsafe { Symbol::typed("passes_the_gate", TEXT, std::ptr::dangling()) };
    exports.replace(replacement).unwrap();
    assert_eq!([before, sets_now(&entry), sets(&image).0], [false, true, true]);
}
