//! Methods of interfaces, imported by images that state no target type, as those of C do.

use std::thread;
use std::time::{Duration, Instant};

use ifunc::payload::TargetArgs;
use ifunc_abi::image::{EntryPart, ImageParts, ImportFlags, ImportPart};

use super::machine::{self, ARCH};
use super::running::{accepting, source, unique};
use crate::{ByName, Call, Error, Handle, Rejection, Target, TargetBuilder};

/// Generic, so that the targets of the other tests do not export it.
#[derive(ifunc::Opaque)]
#[opaque(interfaces)]
struct Shelf<T>(T);

#[ifunc::interface]
trait Peek {
    fn peek(&self) -> u64;
}

impl Peek for Shelf<u64> {
    fn peek(&self) -> u64 {
        self.0
    }
}

impl Peek for Shelf<u32> {
    fn peek(&self) -> u64 {
        self.0.into()
    }
}

/// Calls `Peek_peek` on its target arguments, and answers the result.
fn peeks(flags: ImportFlags) -> Vec<u8> {
    let (rx, slot) = machine::peeks();
    let parts = ImageParts {
        entries: vec![EntryPart::new("peeks")],
        arch: ARCH,
        rx_align_log2: 4,
        slot: Some(slot),
        rx,
        imports: vec![ImportPart {
            symbol: "Peek_peek".into(),
            flags,
            fingerprint: 0,
        }],
        ..ImageParts::default()
    };
    parts.encode().unwrap()
}

fn for_u64() -> TargetBuilder {
    accepting().export_interface::<dyn Peek, Shelf<u64>>()
}

/// Lets the target run what was sent to it, on `value`.
fn answered<T: TargetArgs + 'static>(
    target: &mut Target,
    value: &mut T,
    call: Call<Vec<u8>>,
) -> Result<u64, (Rejection, String)> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while target.poll(value) == 0 {
        assert!(Instant::now() < deadline, "nothing arrived");
        thread::yield_now();
    }
    // What was sent together is processed together, or when there is credit for it.
    while target.poll(value) != 0 {}
    match call.wait() {
        Ok(answer) => Ok(u64::from_le_bytes(answer.try_into().unwrap())),
        Err(Error::Rejected { why, detail, .. }) => Err((why, detail)),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_method_of_another_type_is_refused_at_installation() {
    for flags in [ImportFlags::NONE, ImportFlags::WEAK] {
        let address = unique("loopback");
        let mut target = for_u64().listen(&address).unwrap();
        let source = source(&address);
        let handle: Handle<ByName> = source.load_bytes(&peeks(flags)).unwrap();
        let refused = answered(&mut target, &mut Shelf(7u32), handle.call(b"").unwrap());
        let (why, text) = refused.unwrap_err();
        assert_eq!(why, Rejection::TargetType);
        for part in [
            "the image:  (not stated)",
            "imports `Peek_peek`, a method of the interface `Peek`",
            "which this target exports for `",
            "Shelf<u64>`",
            "the target serves `",
            "Shelf<u32>`; help: serve a `",
            "export_interface::<dyn Peek, ",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert_eq!(target.images(), 0, "nothing was installed");
    }
}

#[test]
fn an_image_that_was_bound_does_not_run_on_another_type() {
    let address = unique("loopback");
    let mut target = for_u64().listen(&address).unwrap();
    let source = source(&address);
    let handle: Handle<ByName> = source.load_bytes(&peeks(ImportFlags::NONE)).unwrap();
    let call = || handle.call(b"").unwrap();
    assert_eq!(answered(&mut target, &mut Shelf(7u64), call()), Ok(7));
    let (why, text) = answered(&mut target, &mut Shelf(7u32), call()).unwrap_err();
    assert_eq!(why, Rejection::TargetType);
    assert!(text.contains("`Peek_peek`"), "{text}");
    assert_eq!(answered(&mut target, &mut Shelf(8u64), call()), Ok(8));
}
