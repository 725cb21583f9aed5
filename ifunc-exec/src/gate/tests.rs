//! What passes the gate, and how it comes back.

use super::injected::invoke;
use super::*;
use crate::ExecThread;
use crate::arch::testing::{AT_FIRST, TOWARDS_ZERO, UPWARDS, round, rounding, with_part, word};
use crate::entrance::Entrance;

/// As the shim of an exported function does.
fn guard<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: the functions of this gate do what its fields say.
    unsafe { ifunc::host::set_call_gate(&CALL_GATE) };
    ifunc::host::through_gate(call)
}

unsafe extern "C" fn twice(payload: *const u8, size: usize, target: *mut c_void, _: *mut Context) -> u32 {
    // SAFETY: the tests pass eight readable bytes and a `u64`.
    unsafe { *target.cast::<u64>() += payload.cast::<u64>().read_unaligned() };
    size as u32
}

unsafe extern "C" fn panics(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    // SAFETY: this function owns nothing.
    unsafe { escape_with_panic(b"no more", b"src/x.rs", 7, 9) }
}

unsafe extern "C" fn host_panics(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    guard(|| panic!("the disk is on fire"));
    3
}

unsafe extern "C" fn deep(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    #[expect(unconditional_recursion, reason = "the guard ends it")]
    fn down(n: usize) -> usize {
        let room = std::hint::black_box([n as u8; 4096]);
        guard(|| {});
        down(n + 1) + room[7] as usize
    }
    down(0) as u32
}

type Main = unsafe extern "C" fn(*const u8, usize, *mut c_void, *mut Context) -> u32;

fn run(thread: &mut ExecThread, main: Main, value: &mut u64) -> Result<u32, Escape> {
    run_as(thread, main, true, value)
}

/// `sets_float_control`: the image may.
fn run_as(
    thread: &mut ExecThread,
    main: Main,
    sets_float_control: bool,
    value: &mut u64,
) -> Result<u32, Escape> {
    let payload = 5u64.to_le_bytes();
    let mut session = thread.session();
    let target = (&raw mut *value).cast();
    let entrance = Entrance::new(main as *const c_void);
    entrance.set_float_control(sets_float_control);
    // SAFETY: `main` is one of the functions above, which take these arguments.
    let code = unsafe {
        session.enter(
            &entrance,
            payload.as_ptr(),
            payload.len(),
            target,
            std::ptr::null_mut(),
        )
    };
    session.take_escape().map_or(Ok(code), |escape| Err(*escape))
}

#[test]
fn a_gate_knows_on_which_side_its_invocation_is() {
    let mut thread = ExecThread::for_tests(1 << 20);
    let is_in_host = || Gate::current().is_some_and(Gate::is_in_host);
    assert!(!is_in_host());
    let mut seen = Vec::new();
    let outcome = invoke(&mut thread, || {
        seen.push(is_in_host());
        guard(|| seen.push(is_in_host()));
        seen.push(gate_of_invocation().is_none() || gate_in_host().is_some());
        0
    });
    assert_eq!((outcome, &seen[..]), (Ok(0), &[false, true, false][..]));
    let _session = thread.session();
    assert!(Gate::current().is_some() && !is_in_host());
    assert!(gate_of_invocation().is_none() && gate_in_host().is_none());
}

#[test]
fn a_change_within_a_change_ends_with_the_outer_one() {
    let mut thread = ExecThread::for_tests(1 << 20);
    let mut seen = Vec::new();
    let outcome = invoke(&mut thread, || {
        guard(|| {
            let passages = &Gate::current().unwrap().passages;
            let mut note = || {
                let is_changing = passages.set_changing(true);
                passages.set_changing(is_changing);
                seen.push(is_changing);
            };
            note();
            let outer = ChangeByThisThread::begin();
            note();
            drop(ChangeByThisThread::begin());
            note();
            drop(outer);
            note();
        });
        0
    });
    assert_eq!((outcome, &seen[..]), (Ok(0), &[false, true, true, false][..]));
}

#[test]
fn a_panic_of_the_host_has_the_message_of_its_payload() {
    assert_eq!(panic_message(&"a literal"), "a literal");
    assert_eq!(panic_message(&String::from("formatted")), "formatted");
    assert_eq!(panic_message(&7), "(no message)");
    // Cut between two characters.
    let long = "é".repeat(MAX_DETAIL);
    assert_eq!(panic_message(&long), "é".repeat(MAX_DETAIL / 2));
}

#[test]
fn returns_and_escapes() {
    let mut thread = ExecThread::for_tests(1 << 20);
    let mut value = 2;
    for sets_float_control in [true, false, true] {
        let run =
            |thread: &mut ExecThread, main, value: &mut u64| run_as(thread, main, sets_float_control, value);
        assert_eq!(run(&mut thread, twice, &mut value), Ok(8));
        assert_eq!(
            run(&mut thread, panics, &mut value),
            Err(Escape::Panic {
                message: "no more".into(),
                file: "src/x.rs".into(),
                line: 7,
                column: 9,
                stack: 0,
                trail: Vec::new(),
            })
        );
        assert_eq!(
            run(&mut thread, host_panics, &mut value),
            Err(Escape::HostPanic("the disk is on fire".into()))
        );
        assert_eq!(run(&mut thread, deep, &mut value), Err(Escape::StackLow));
    }
    assert_eq!(value, 17);
}

/// Rounds towards zero, and answers whether it still does so after an import.
unsafe extern "C" fn rounds(_: *const u8, _: usize, target: *mut c_void, _: *mut Context) -> u32 {
    round(TOWARDS_ZERO);
    // SAFETY: the tests pass a `u64`.
    let seen = unsafe { &mut *target.cast::<u64>() };
    let mut in_host = TOWARDS_ZERO;
    guard(|| in_host = rounding());
    let after = rounding();
    let within = on_host_side(rounding);
    *seen = word(in_host);
    u32::from(after == TOWARDS_ZERO && rounding() == TOWARDS_ZERO && within == in_host)
}

/// Rounds towards zero with a part of what controls it, and returns.
unsafe extern "C" fn rounds_first_part(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    round(with_part(0, TOWARDS_ZERO, rounding()));
    0
}

/// With the other part alone.
unsafe extern "C" fn rounds_second_part(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    round(with_part(1, TOWARDS_ZERO, rounding()));
    0
}

unsafe extern "C" fn rounds_and_panics(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    round(TOWARDS_ZERO);
    // SAFETY: this function owns nothing.
    unsafe { escape_with_panic(b"no more", b"src/x.rs", 7, 9) }
}

unsafe extern "C" fn rounds_and_host_panics(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    round(TOWARDS_ZERO);
    guard(|| panic!("the disk is on fire"));
    3
}

#[test]
fn the_host_computes_as_before_however_an_ifunc_ends() {
    let mut thread = ExecThread::for_tests(1 << 20);
    let at_first = rounding();
    let mains = [
        rounds as Main,
        rounds_first_part,
        rounds_second_part,
        rounds_and_panics,
        rounds_and_host_panics,
    ];
    let after = mains.map(|main| {
        round(UPWARDS);
        let outcome = run(&mut thread, main, &mut 0);
        let after = rounding();
        round(at_first);
        (after, outcome.is_ok())
    });
    let has_returned = [true, true, true, false, false];
    assert_eq!(after, has_returned.map(|is_ok| (UPWARDS, is_ok)));
}

/// Where the host's rounding is kept is decided by what the image says of itself.
#[test]
fn control_of_floats_that_no_image_sets_is_left_alone_however_an_ifunc_ends() {
    let mut thread = ExecThread::for_tests(1 << 20);
    let at_first = rounding();
    let after = [
        twice as Main,
        panics,
        host_panics,
        deep,
        rounds_first_part,
        rounds_second_part,
    ]
    .map(|main| {
        round(UPWARDS);
        let _ = run_as(&mut thread, main, false, &mut 0);
        let after = rounding();
        round(at_first);
        after
    });
    let lied = [0, 1].map(|part| with_part(part, TOWARDS_ZERO, UPWARDS));
    assert_eq!(after, [UPWARDS, UPWARDS, UPWARDS, UPWARDS, lied[0], lied[1]]);
}

#[test]
fn functions_of_the_host_compute_as_the_host_does() {
    let mut thread = ExecThread::for_tests(1 << 20);
    let mut seen = 0;
    assert_eq!(run(&mut thread, rounds, &mut seen), Ok(1));
    assert_eq!(seen, word(AT_FIRST));
}

unsafe extern "C" fn called_back(_: *const u8, _: usize, _: *mut c_void, _: *mut Context) -> u32 {
    // SAFETY: this function owns nothing.
    guard(|| unsafe { escape_with_panic(b"up\x1b[2J", b"", 0, 0) });
    0
}

/// In a process of its own, which it ends.
#[test]
fn a_callback_of_an_exported_function_must_not_panic() {
    use std::os::unix::process::ExitStatusExt as _;
    const CHILD: &str = "IFUNC_TEST_CALLBACK";
    if std::env::var_os(CHILD).is_some() {
        let mut thread = ExecThread::for_tests(1 << 20);
        let _ = run(&mut thread, called_back, &mut 0);
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "gate::tests::a_callback_of_an_exported_function_must_not_panic",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.signal(),
        Some(rustix::process::Signal::ABORT.as_raw()),
        "{output_text}"
    );
    assert!(
        output_text.contains("in a function that an exported function called by its pointer"),
        "{output_text}"
    );
    assert!(output_text.contains(r"up\u{1b}[2J"), "{output_text}");
}

#[test]
fn the_guard_is_transparent_to_the_host() {
    let mut called = false;
    guard(|| called = true);
    assert!(called);
    assert!(std::panic::catch_unwind(|| guard(|| panic!("up"))).is_err());
}
