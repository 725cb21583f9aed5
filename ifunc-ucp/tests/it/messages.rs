//! The interface without a network: registration, messages, and what a poll does with a frame in its buffer.

use std::ffi::c_void;
use std::ptr;

use crate::common::{
    CANCELED, Context, INVALID_PARAM, IO_ERROR, Libraries, NO_ELEM, NO_MESSAGE, OK, Tally, UNSUPPORTED,
    frame, message,
};
use ifunc_abi::image::{Image, ImageParts};
use ifunc_build::COptions;
use ucp_ifunc::c::{
    ucp_ifunc_msg_free, ucp_ifunc_msg_get_payload_ptr, ucp_ifunc_msg_t, ucp_register_ifunc_paper,
};

fn paper() -> COptions {
    COptions {
        cflags: vec!["-DPAPER".into()],
        ..COptions::default()
    }
}

fn step(n: u32) -> COptions {
    COptions {
        cflags: vec![format!("-DSTEP={n}")],
        ..COptions::default()
    }
}

#[test]
fn a_message_runs_once_in_either_order_of_arguments() {
    for options in [paper(), COptions::default()] {
        let context = Context::with(&["tally.c"], options);
        let handle = context.register("tally");
        let mut tally = Tally::default();
        for (round, args) in [&b""[..], b"\x01", b"\x01\x02\x03", &[7; 512], &[1; 1 << 20]]
            .iter()
            .enumerate()
        {
            tally.sum = 0;
            let frame = frame(handle, args);
            // What travels beside 512 bytes of payload has as much space in the programs of the paper.
            assert!(
                frame.len() - args.len() <= 512,
                "{} of {} bytes",
                frame.len(),
                args.len()
            );
            // Whatever an idle buffer holds.
            for idle in [0, 17, 42, 0xd3] {
                let mut buffer = vec![idle; frame.len() + 100];
                assert_eq!(context.poll(&mut buffer, &mut tally), NO_MESSAGE);
                buffer[..frame.len()].copy_from_slice(&frame);
                tally.sum = 0;
                assert_eq!(context.poll(&mut buffer, &mut tally), OK);
                let sum: u64 = args.iter().map(|byte| u64::from(*byte)).sum();
                assert_eq!(tally.sum, sum);
                assert_eq!(context.poll(&mut buffer, &mut tally), NO_MESSAGE);
            }
            assert_eq!(tally.messages, 4 * (round as u64 + 1));
        }
        // `payload_init` does not return 0.
        assert_eq!(message(handle, &[0xff]).map(|_| ()), Err(CANCELED));
    }
}

#[test]
fn a_name_is_registered_once_and_then_again_with_other_code() {
    const NAME: &str = "a_name_of_more_than_seven";
    let libraries = Libraries::build(&["a_name_of_more_than_seven.c"], step(1));
    let (context, other) = (Context::new(&libraries), Context::new(&libraries));
    let first = context.register(NAME);
    assert_eq!(context.register(NAME), first);
    assert_ne!(other.register(NAME), first, "another context has its own");
    let old = frame(first, b"");

    libraries.add(&["a_name_of_more_than_seven.c"], step(100));
    assert_eq!(context.register(NAME), first, "it is registered");
    other.deregister(first);
    assert_eq!(frame(first, b""), old, "not with the other context");
    context.deregister(first);
    context.deregister(first);
    context.deregister(ptr::null_mut());
    context.deregister(ptr::without_provenance_mut(0x1234_5678));
    assert_eq!(message(first, b"").map(|_| ()), Err(NO_ELEM));
    let second = context.register(NAME);
    assert_ne!(second, first);
    let new = frame(second, b"");
    // The target runs the code of each frame, in any order.
    let mut tally = Tally::default();
    for (frame, sum) in [(&old, 1), (&new, 101), (&old, 102), (&old, 103), (&new, 203)] {
        assert_eq!(context.poll(&mut frame.clone(), &mut tally), OK);
        assert_eq!(tally.sum, sum);
    }
}

#[test]
fn what_cannot_be_registered_has_a_status() {
    let libraries = Libraries::build(&["tally.c"], COptions::default());
    let context = Context::new(&libraries);
    std::fs::write(libraries.folder().join("text.so"), "this is no library").unwrap();
    std::fs::copy("/bin/true", libraries.folder().join("program.so")).unwrap();
    std::fs::copy(
        libraries.folder().join("tally.so"),
        libraries.folder().join("renamed.so"),
    )
    .unwrap();
    for (name, status) in [
        ("nowhere", IO_ERROR),
        ("text", IO_ERROR),
        ("program", IO_ERROR),
        ("renamed", IO_ERROR),
        ("../tally", INVALID_PARAM),
        ("", INVALID_PARAM),
        ("tally", OK),
    ] {
        let (found, handle) = context.try_register(name);
        assert_eq!((found, handle.is_null()), (status, status != OK), "{name}");
    }
    let mut handle = ptr::null_mut();
    // SAFETY: null pointers are refused.
    unsafe {
        let register =
            |context: *mut c_void, name, handle| ucp_register_ifunc_paper(context.cast(), name, handle);
        let name = c"tally".as_ptr();
        let null = ptr::null_mut();
        assert_eq!(register(null, name, &raw mut handle), INVALID_PARAM);
        assert_eq!(
            register(context.pointer(), ptr::null(), &raw mut handle),
            INVALID_PARAM
        );
        assert_eq!(register(context.pointer(), name, ptr::null_mut()), INVALID_PARAM);
        assert_eq!(register(context.pointer(), name, &raw mut handle), OK);
    }
}

const HERE: &str = "x86_64-pc-linux-gnu";
const THERE: &str = "aarch64-unknown-linux-gnu";

/// The code in a frame.
fn image_of(frame: &[u8]) -> Vec<u8> {
    let len = u32::from_le_bytes(frame[16..20].try_into().unwrap()) as usize;
    frame[frame.len() - 16 - len..][..len].to_vec()
}

#[test]
fn code_in_memory_is_a_library_or_an_image() {
    let libraries = Libraries::build(&["tally.c"], COptions::default());
    let context = Context::new(&libraries);
    let library = libraries.bytes("tally");
    let image = image_of(&context.frame("tally", &[1, 2]));
    for code in [&library, &image] {
        let context = Context::new(&libraries);
        let (status, handle) = context.register_code(&[(THERE, b"BC\xc0\xde"), (HERE, code)], &["libc.so.6"]);
        assert_eq!(status, OK);
        let mut tally = Tally::default();
        assert_eq!(context.poll(&mut frame(handle, &[1, 2]), &mut tally), OK);
        assert_eq!(tally.sum, 3);
    }
    let context = Context::new(&libraries);
    for (codes, deps, expected) in [
        (&[(HERE, &b"BC\xc0\xde...."[..])][..], &[][..], UNSUPPORTED),
        (&[(HERE, b"\xde\xc0\x17\x0b....")], &[], UNSUPPORTED),
        (&[(THERE, &library)], &[], NO_ELEM),
        (&[], &[], NO_ELEM),
        (&[(HERE, b"")], &[], IO_ERROR),
        (&[(HERE, &image[..100])], &[], IO_ERROR),
        (&[(HERE, &library)], &["libnowhere.so.9"], IO_ERROR),
    ] {
        assert_eq!(context.register_code(codes, deps), (expected, ptr::null_mut()));
    }
}

#[test]
fn a_payload_is_changed_between_two_sends() {
    let context = Context::with(&["tally.c"], COptions::default());
    let mut msg = message(context.register("tally"), &[1, 2, 3]).unwrap();
    let (mut payload, mut size) = (ptr::null_mut(), 0);
    // SAFETY: a message, and variables of this test.
    unsafe {
        assert_eq!(
            ucp_ifunc_msg_get_payload_ptr(&raw mut msg, &raw mut payload, &raw mut size),
            0
        );
        assert_eq!(
            ucp_ifunc_msg_get_payload_ptr(&raw mut msg, &raw mut payload, ptr::null_mut()),
            0
        );
        assert_eq!(std::slice::from_raw_parts(payload.cast::<u8>(), size), [1, 2, 3]);
        assert!(payload.addr().is_multiple_of(32));
        for (msg, payload) in [
            (ptr::null_mut(), &raw mut payload),
            (&raw mut msg, ptr::null_mut()),
        ] {
            assert_eq!(
                ucp_ifunc_msg_get_payload_ptr(msg, payload, ptr::null_mut()),
                INVALID_PARAM
            );
        }
        let mut shorter = ucp_ifunc_msg_t {
            frame_size: msg.frame_size - 1,
            ..msg
        };
        let status = ucp_ifunc_msg_get_payload_ptr(&raw mut shorter, &raw mut payload, ptr::null_mut());
        assert_eq!(status, INVALID_PARAM);
        ucp_ifunc_msg_free(msg);
        ucp_ifunc_msg_free(ucp_ifunc_msg_t {
            frame: ptr::null_mut(),
            ..msg
        });
    }
}

#[test]
fn a_frame_that_is_too_long_or_in_a_bad_place() {
    let context = Context::with(&["tally.c"], COptions::default());
    let whole = context.frame("tally", &[9; 100]);
    let mut tally = Tally::default();
    for len in [whole.len() - 1, 33, 32, 8] {
        let mut buffer = whole.clone();
        assert_eq!(context.poll(&mut buffer[..len], &mut tally), CANCELED, "{len}");
        assert_eq!(context.poll(&mut buffer[..len], &mut tally), NO_MESSAGE, "{len}");
    }
    for len in 0..8 {
        assert_eq!(
            context.poll(&mut whole.clone()[..len], &mut tally),
            NO_MESSAGE,
            "{len}"
        );
    }
    // The payload is aligned for its code, wherever the application's buffer begins.
    let mut buffer = vec![0; whole.len() + 64];
    for at in 0..64 {
        buffer[at..][..whole.len()].copy_from_slice(&whole);
        assert_eq!(context.poll(&mut buffer[at..], &mut tally), OK, "{at}");
        assert!(tally.payload.is_multiple_of(16), "{at}");
    }
    assert_eq!((tally.messages, tally.sum), (64, 64 * 900));
    // SAFETY: null pointers are refused.
    unsafe {
        let args = tally.as_args();
        assert_eq!(context.poll_at(ptr::null_mut(), 100, args), INVALID_PARAM);
        let status = ucp_ifunc::c::ucp_poll_ifunc_threechains(
            ptr::null_mut(),
            buffer.as_mut_ptr().cast(),
            100,
            args,
            ptr::null_mut(),
        );
        assert_eq!(status, INVALID_PARAM);
    }
}

#[test]
fn code_that_does_not_end_well_is_a_status() {
    let context = Context::with(&["odd.c", "tally.c"], COptions::default());
    let mut tally = Tally {
        mark: 1,
        ..Tally::default()
    };
    for _ in 0..3 {
        for (name, status) in [
            ("aborts", CANCELED),
            ("asserts", CANCELED),
            ("missing", CANCELED),
            ("process", OK),
        ] {
            let mut buffer = context.frame(name, b"");
            assert_eq!(context.poll(&mut buffer, &mut tally), status, "{name}");
            assert_eq!(context.poll(&mut buffer, &mut tally), NO_MESSAGE, "{name}");
        }
    }
    assert_eq!((tally.messages, tally.sum), (3, std::process::id().into()));
}

#[test]
fn libraries_that_an_image_names_are_opened() {
    let options = COptions {
        needed: vec!["libz.so.1".into()],
        ..COptions::default()
    };
    let context = Context::with(&["checksum.c"], options);
    let mut tally = Tally::default();
    let mut buffer = context.frame("checksum", b"123456789");
    assert_eq!(context.poll(&mut buffer, &mut tally), OK);
    assert_eq!(tally.sum, 0xcbf4_3926);
}

/// `struct nested` of `odd.c`.
#[repr(C)]
struct Nested<'a> {
    tally: Tally,
    poll: extern "C" fn(&mut Nested<'_>) -> i32,
    result: i32,
    context: &'a Context,
    /// One buffer for each message.
    buffers: Vec<Vec<u8>>,
}

extern "C" fn poll_next(nested: &mut Nested<'_>) -> i32 {
    let Some(mut buffer) = nested.buffers.pop() else {
        return 0;
    };
    let (context, args) = (nested.context, (&raw mut *nested).cast());
    // SAFETY: a message of this test, and what its code takes.
    unsafe { context.poll_at(buffer.as_mut_ptr(), buffer.len(), args).into() }
}

#[test]
fn an_invocation_polls_again_in_a_function_of_its_host() {
    let context = Context::with(&["odd.c"], COptions::default());
    let frame = context.frame("nests", b"");
    let nested = |buffers| Nested {
        tally: Tally::default(),
        poll: poll_next,
        result: 0,
        context: &context,
        buffers: vec![frame.clone(); buffers],
    };
    for inside in [0, 1, 20] {
        let mut nested = nested(inside + 1);
        assert_eq!(poll_next(&mut nested), 0);
        let each = inside as u64 + 1;
        assert_eq!((nested.tally.messages, nested.tally.sum), (each, each));
    }
    // They are bounded, and what does not run stays where it is.
    let mut too_many = nested(100);
    assert_eq!(poll_next(&mut too_many), 0);
    assert_eq!((too_many.tally.messages, too_many.buffers.len()), (32, 100 - 33));
}

/// Frames with the code of `tally`, each in an image of its own.
fn distinct(context: &Context, number: u32) -> Vec<Vec<u8>> {
    let image = image_of(&context.frame("tally", &[1]));
    let parts = ImageParts::from(&Image::parse(&image).unwrap());
    context.deregister(context.register("tally"));
    (0..number)
        .map(|n| {
            let mut parts = parts.clone();
            // Constants, as far as a target knows.
            parts.rx.extend_from_slice(&n.to_le_bytes());
            let (status, handle) = context.register_code(&[(HERE, &parts.encode().unwrap())], &[]);
            assert_eq!(status, OK);
            let frame = frame(handle, &[1]);
            context.deregister(handle);
            frame
        })
        .collect()
}

#[test]
fn more_code_than_is_kept_is_installed_again() {
    let context = Context::with(&["tally.c"], COptions::default());
    let frames = distinct(&context, 1100);
    let mut tally = Tally::default();
    for frame in frames.iter().chain(&frames[..50]) {
        assert_eq!(context.poll(&mut frame.clone(), &mut tally), OK);
    }
    assert_eq!((tally.messages, tally.sum), (1150, 1150));
}

#[test]
fn threads_poll_buffers_of_their_own() {
    let context = Context::with(&["tally.c"], COptions::default());
    let frames = distinct(&context, 30);
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (context, frames) = (&context, &frames);
            scope.spawn(move || {
                let mut tally = Tally::default();
                for round in 0..200 {
                    let mut buffer = frames[(first * 7 + round) % frames.len()].clone();
                    assert_eq!(context.poll(&mut buffer, &mut tally), OK);
                }
                assert_eq!((tally.messages, tally.sum), (200, 200));
            });
        }
    });
}
