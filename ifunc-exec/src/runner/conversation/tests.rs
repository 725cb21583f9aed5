//! Runners that keep no rule, and what the target does about them.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ifunc::Owned;
use ifunc::host::EXPORTS;
use ifunc_abi::status::{Failure, Status};

use super::*;
use crate::ExecThread;
use crate::held::HoldsForRunner;
use crate::runner::exported::{self, Function, Import};
use crate::runner::objects::Objects;
use crate::runner::port::{Port, Waited};
use crate::runner::segment::Segment;
use crate::runner::signature::{Signature, UNIT};

thread_local! {
    /// What the host's functions saw of callbacks: the value that each left, or `None` after one that did not return.
    static SEEN: RefCell<Vec<Option<u64>>> = RefCell::default();
}

/// Calls with each number below `count` until it breaks, and goes on all the same if `count` is odd: so may a function of the host.
#[ifunc::export]
fn visits(count: u64, pause: u64, each: &mut dyn FnMut(&[u8], &mut u64) -> ControlFlow<()>) -> u64 {
    for number in 0..count {
        let mut value = number;
        std::thread::sleep(Duration::from_millis(pause));
        let flow = each(b"bytes", &mut value);
        SEEN.with_borrow_mut(|seen| seen.push(flow.is_continue().then_some(value)));
        if flow.is_break() && count.is_multiple_of(2) {
            return number;
        }
    }
    count
}

#[ifunc::export]
fn fills(len: u64, each: &dyn Fn(&[u8]) -> Option<u64>) -> u64 {
    let bytes = vec![7; len as usize];
    each(&bytes).map_or(u64::MAX, |answer| {
        assert_ne!(answer, 13, "an unlucky number");
        answer
    })
}

#[derive(ifunc::Opaque)]
#[opaque("guarded/1")]
struct Guarded(Arc<AtomicU64>);

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[ifunc::export]
fn guards(number: u64) -> Result<Owned<Guarded>, i32> {
    match number {
        0 => Err(7),
        _ => Ok(Owned::new(Guarded(Arc::default()))),
    }
}

#[ifunc::export]
fn visits_guarded(guarded: &mut Guarded, each: &mut dyn FnMut()) -> u64 {
    each();
    guarded.0.load(std::sync::atomic::Ordering::Relaxed)
}

/// Objects that live, and most that lived at a time.
static LIVING: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

#[derive(ifunc::Opaque)]
#[opaque("poured/1")]
struct Poured(#[expect(dead_code, reason = "an object has a size")] u8);

impl Poured {
    fn pour() -> Owned<Self> {
        use std::sync::atomic::Ordering::Relaxed;
        MOST.fetch_max(LIVING.fetch_add(1, Relaxed) + 1, Relaxed);
        Owned::new(Self(1))
    }
}

impl Drop for Poured {
    fn drop(&mut self) {
        LIVING.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Gives away one after the other, whatever the callback says.
#[ifunc::export]
fn pours(count: u64, each: &mut dyn FnMut(Owned<Poured>) -> ControlFlow<()>) -> Owned<Poured> {
    for _ in 0..count {
        let _ = each(Poured::pour());
    }
    Poured::pour()
}

const VISITS: u64 = 0;
const FILLS: u64 = 1;
const GUARDS: u64 = 2;
const VISITS_GUARDED: u64 = 3;
const POURS: u64 = 4;
/// What the host's log panics about.
const BAD_LEVEL: u32 = 77;

/// A host whose functions are those above.
struct Functions<'a> {
    imports: Vec<(Import, usize)>,
    objects: Objects<'a>,
}

impl<'a> Functions<'a> {
    fn new(last: &'a AtomicU64) -> Self {
        let import = |name: &str| {
            let export = EXPORTS.iter().find(|export| export.name() == name).unwrap();
            let import = Import {
                name: name.to_owned(),
                text: export.signature().to_owned(),
                signature: Signature::of(export.signature()).unwrap(),
            };
            (import, export.address().expose_provenance())
        };
        Self {
            imports: ["visits", "fills", "guards", "visits_guarded", "pours"]
                .map(import)
                .into(),
            objects: Objects::new(None, last),
        }
    }
}

impl Host for Functions<'_> {
    fn log(&self, message: &LogMessage<'_>) {
        assert_ne!(message.level, BAD_LEVEL, "a subscriber's panic");
    }

    fn call(&self, number: u64, buffer: &mut Buffer, ifunc: &dyn Ifunc) -> Result<(), CallError> {
        let (import, address) = &self.imports[number as usize];
        let function = Function {
            import,
            number,
            address: *address,
        };
        // SAFETY: the exports of these names have these signatures, and take no target arguments.
        unsafe { exported::call(function, buffer, &self.objects, ifunc) }
    }
}

/// The runner's side, which says what the test tells it to.
struct Runner(Port<OwnedFd, Arc<Segment>>);

impl Runner {
    fn say<const N: usize>(&mut self, kind: Kind, words: [u64; N]) {
        self.0.send(&Message::new(kind, words));
    }

    /// The next message; `None`: the target says nothing any more.
    fn heard(&mut self) -> Option<Message> {
        match self.0.wait(None, Some(Instant::now() + Duration::from_secs(20))) {
            Waited::Received(message) => Some(message),
            _ => None,
        }
    }

    /// Calls a function of the host with these units: pairs of words.
    fn call(&mut self, function: u64, units: &[[u64; 2]]) {
        let bytes: Vec<u8> = units
            .iter()
            .flatten()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        self.0.segment.write(Area::Call, 0, &bytes);
        self.say(Kind::Call, [function, bytes.len() as u64]);
    }

    /// Calls `visits` with a callback of the words 10 and 11.
    fn visit(&mut self, count: u64, pause: u64) {
        self.call(VISITS, &[[0, 0], [count, 0], [pause, 0], [10, 11]]);
    }

    /// The units of the buffer in the call area.
    fn units<const N: usize>(&self) -> [[u64; 2]; N] {
        let bytes = self.0.segment.copy(Area::Call, N * UNIT).unwrap();
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        std::array::from_fn(|unit| [word(unit * UNIT), word(unit * UNIT + 8)])
    }

    /// The message with which the host's function panicked, or could not be called.
    fn refusal(&mut self) -> String {
        match self.heard() {
            Some(Message {
                kind: Kind::Returned,
                words: [1, len, ..],
            }) => self.0.segment.note_text(len),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn hears(&mut self, kind: Kind) -> [u64; 6] {
        let message = self.heard().unwrap();
        assert_eq!(message.kind, kind, "{message:?}");
        message.words
    }
}

const LIMIT: Duration = Duration::from_millis(300);

type Outcome = Result<(Status, usize), Lost>;

/// What a request ends with while the runner does this, what the host's functions saw, and what the runner returned.
fn during<R: Send>(
    limit: Option<Duration>,
    runs: impl FnOnce(&mut Runner) -> R + Send,
) -> (Outcome, Vec<Option<u64>>, R) {
    let (mut process, port) = Process::of_test(limit);
    let last = AtomicU64::new(0);
    let host = Functions::new(&last);
    SEEN.take();
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let mut runner = Runner(port);
            runner.hears(Kind::Run);
            runs(&mut runner)
        });
        let deadline = limit.map(|limit| Instant::now() + limit);
        let outcome = process.request(&Message::new(Kind::Run, [0]), deadline, &host);
        (outcome, SEEN.take(), runner.join().unwrap())
    })
}

#[track_caller]
fn ends_for(outcome: Outcome, failure: Failure, part: &str) {
    match outcome {
        Err(Lost(why, text)) => assert!(why == failure && text.contains(part), "{why:?}: {text}"),
        Ok(done) => panic!("{done:?}"),
    }
}

const EXECUTED: u64 = Status::Executed.code() as u64;

#[test]
fn a_callback_takes_one_round_trip_and_changes_what_it_is_lent() {
    let (outcome, seen, sent) = during(None, |runner| {
        runner.visit(3, 0);
        for number in 0..3 {
            let words = runner.hears(Kind::CallBack);
            assert_eq!(words, [VISITS, 2, 10, 11, 5 * UNIT as u64, 0]);
            let mut units = runner.units::<5>();
            let bytes = u64::from_le_bytes(*b"bytes\0\0\0");
            assert_eq!(
                units[1..],
                [[1, 5], [bytes, units[2][1]], [1, 0], [number, units[4][1]]]
            );
            // What it may not change is not read, and of the result only what its type has.
            (units[0][0], units[2], units[4][0]) = (0xff00, [9, 9], number + 100);
            let bytes: Vec<u8> = units
                .iter()
                .flatten()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            runner.0.segment.write(Area::Call, 0, &bytes);
            runner.say(Kind::CalledBack, [0]);
        }
        assert_eq!(runner.hears(Kind::Returned)[0], 0);
        assert_eq!(runner.units::<1>()[0][0], 3);
        runner.say(Kind::Done, [EXECUTED, 5]);
        runner.0.sent()
    });
    assert!(matches!(outcome, Ok((Status::Executed, 5))), "{outcome:?}");
    assert_eq!(seen, [Some(100), Some(101), Some(102)]);
    // The call, each callback, and the end.
    assert_eq!(sent, 1 + 3 + 1);
}

#[test]
fn after_a_callback_that_ended_early_none_crosses() {
    for (count, seen_after) in [(4, 2), (5, 5)] {
        let (outcome, seen, sent) = during(None, |runner| {
            runner.visit(count, 0);
            runner.hears(Kind::CallBack);
            runner.say(Kind::CalledBack, [0]);
            runner.hears(Kind::CallBack);
            runner.say(Kind::CalledBack, [1]);
            runner.hears(Kind::Returned);
            runner.say(Kind::Done, [EXECUTED, 0]);
            runner.0.sent()
        });
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!((seen.len(), sent), (seen_after, 4));
        assert!(
            seen[0].is_some() && seen[1..].iter().all(Option::is_none),
            "{seen:?}"
        );
    }
}

#[test]
fn a_panic_of_the_hosts_log_is_none_of_the_invocations() {
    let (outcome, _, ()) = during(Some(Duration::from_secs(100)), |runner| {
        for level in [1, BAD_LEVEL, 1] {
            runner.say(Kind::Log, [level.into(), 0]);
            runner.hears(Kind::Continue);
        }
        runner.say(Kind::Done, [EXECUTED, 0]);
    });
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn what_is_not_a_callbacks_answer_ends_the_process() {
    type Answer = fn(&mut Runner);
    let wrong: [(&str, Answer); 5] = [
        ("a message out of turn", |runner| {
            runner.say(Kind::Done, [EXECUTED])
        }),
        ("a message out of turn", |runner| runner.say(Kind::Ready, [])),
        ("a message out of turn", |runner| runner.say(Kind::CallBack, [0])),
        ("a call that is too long", |runner| {
            runner.say(Kind::Call, [VISITS, u64::MAX])
        }),
        ("a message that no version defines", |runner| {
            runner.0.send_malformed()
        }),
    ];
    for (expected, answers) in wrong {
        let (outcome, seen, ()) = during(None, |runner| {
            runner.visit(3, 0);
            runner.hears(Kind::CallBack);
            answers(runner);
        });
        // The host's function saw it, and went on in its own way.
        assert_eq!(seen, [None; 3], "{expected}");
        ends_for(outcome, Failure::Fault, expected);
    }
    let (outcome, seen, ()) = during(None, |runner| runner.say(Kind::CalledBack, [0]));
    ends_for(outcome, Failure::Fault, "a message out of turn");
    assert_eq!(seen, []);
}

#[test]
fn calls_and_callbacks_nest_so_deep_and_no_deeper() {
    let (outcome, seen, deepest) = during(None, |runner| {
        let mut depth = 0;
        let why = loop {
            runner.visit(1, 0);
            match runner.heard().unwrap() {
                Message {
                    kind: Kind::CallBack, ..
                } => depth += 1,
                Message { words, .. } => break runner.0.segment.note_text(words[1]),
            }
        };
        assert!(why.contains("nested too deep"), "{why}");
        for _ in 0..depth {
            runner.say(Kind::CalledBack, [0]);
            runner.hears(Kind::Returned);
        }
        runner.say(Kind::Done, [EXECUTED, 0]);
        depth
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!((deepest, seen.len()), (MAX_DEPTH, MAX_DEPTH));
}

#[test]
fn a_process_that_is_lost_in_a_callback_ends_every_function_around_it() {
    let (outcome, seen, ()) = during(None, |runner| {
        for _ in 0..3 {
            runner.visit(3, 0);
            runner.hears(Kind::CallBack);
        }
        runner.say(Kind::Done, [EXECUTED]);
    });
    assert_eq!(seen, [None; 9]);
    ends_for(outcome, Failure::Fault, "a message out of turn");
    // Killed, while it runs a callback.
    let (mut process, port) = Process::of_test(None);
    let pid = rustix::process::Pid::from_child(&process.child);
    let (last, mut runner) = (AtomicU64::new(0), Runner(port));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            runner.hears(Kind::Run);
            runner.visit(2, 0);
            runner.hears(Kind::CallBack);
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        let outcome = process.request(&Message::new(Kind::Run, [0]), None, &Functions::new(&last));
        ends_for(outcome, Failure::Fault, "killed (SIGKILL)");
    });
    assert_eq!(SEEN.take(), [None]);
}

#[test]
fn a_runner_is_late_whatever_it_does() {
    // A callback that does not return.
    let (outcome, seen, ()) = during(Some(LIMIT), |runner| {
        runner.visit(3, 0);
        runner.hears(Kind::CallBack);
    });
    assert_eq!(seen, [None; 3]);
    ends_for(
        outcome,
        Failure::Deadline,
        "for longer than 300ms; its runner process was ended",
    );
    // Messages and calls without end, in a callback and outside of one.
    for in_callback in [false, true] {
        for kind in [Kind::Log, Kind::Call] {
            let (outcome, _, ()) = during(Some(LIMIT), |runner| {
                if in_callback {
                    runner.visit(1, 0);
                    runner.hears(Kind::CallBack);
                }
                loop {
                    match kind {
                        Kind::Log => runner.say(Kind::Log, [3, 0]),
                        _ => runner.visit(0, 0),
                    }
                    let deadline = Instant::now() + Duration::from_millis(500);
                    if !matches!(runner.0.wait(None, Some(deadline)), Waited::Received(_)) {
                        break;
                    }
                }
            });
            ends_for(outcome, Failure::Deadline, "was ended");
        }
    }
}

#[test]
fn the_time_goes_on_while_the_host_is_not_interrupted() {
    // After it, no callback crosses, the function returns, and the runner has a moment to say how it ended. Well is no way.
    let overdue = Status::Failed(Failure::Deadline);
    for status in [overdue, Status::Executed] {
        // The first callback comes in time on a busy machine, too.
        let (outcome, seen, ()) = during(Some(6 * LIMIT), |runner| {
            runner.visit(4, 1000);
            runner.hears(Kind::CallBack);
            runner.say(Kind::CalledBack, [0]);
            runner.hears(Kind::Returned);
            runner.say(Kind::Done, [status.code().into(), 0]);
        });
        match status {
            Status::Executed => ends_for(outcome, Failure::Deadline, "was ended"),
            _ => assert!(matches!(outcome, Ok((told, 0)) if told == overdue)),
        }
        assert_eq!(seen.len(), 2);
        assert!(seen[0].is_some() && seen[1].is_none());
    }
    // It does not have another call.
    let (outcome, seen, ()) = during(Some(LIMIT), |runner| {
        runner.visit(1, 400);
        runner.hears(Kind::Returned);
        runner.visit(1, 0);
    });
    ends_for(outcome, Failure::Deadline, "was ended");
    assert_eq!(seen, [None]);
}

#[test]
fn arguments_that_do_not_fit_are_told_and_the_first_reason_counts() {
    let (outcome, _, ()) = during(None, |runner| {
        let fill = |runner: &mut Runner, len: u64| {
            runner.call(FILLS, &[[0, 0], [len, 0], [10, 11]]);
        };
        fill(runner, crate::runner::segment::CALL as u64);
        assert!(runner.refusal().contains("longer than what crosses"));
        fill(runner, crate::runner::segment::CALL as u64 - 4 * UNIT as u64);
        runner.hears(Kind::CallBack);
        // `Some(5)`: the code, and the number behind the out pointer.
        runner.0.segment.write(Area::Call, 0, &1_u64.to_le_bytes());
        runner.0.segment.write(Area::Call, UNIT, &5_u64.to_le_bytes());
        runner.say(Kind::CalledBack, [0]);
        assert_eq!(runner.hears(Kind::Returned)[0], 0);
        assert_eq!(runner.units::<1>()[0][0], 5);
        fill(runner, 5);
        runner.hears(Kind::CallBack);
        runner.0.segment.write(Area::Call, 0, &1_u64.to_le_bytes());
        runner.0.segment.write(Area::Call, UNIT, &13_u64.to_le_bytes());
        runner.say(Kind::CalledBack, [0]);
        assert!(runner.refusal().contains("an unlucky number"));
        // Null, as in the target.
        runner.call(FILLS, &[[0, 0], [5, 0], [0, 0]]);
        assert!(runner.refusal().contains("a null pointer as `each`"));
        runner.say(Kind::Done, [EXECUTED, 0]);
    });
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// A runner may go on when its invocation should have ended, and calls what gives it objects again.
#[test]
fn a_runner_holds_a_bounded_number_of_objects_whatever_it_does() {
    use std::sync::atomic::Ordering::Relaxed;
    const MANY: u64 = 3000;
    let mut thread = ExecThread::for_tests(1 << 20);
    let session = thread.session();
    let pour = |runner: &mut Runner, ends_early: bool| {
        runner.call(POURS, &[[0, 0], [MANY, 0], [10, 11]]);
        loop {
            match runner.heard().unwrap() {
                Message {
                    kind: Kind::CallBack, ..
                } => runner.say(Kind::CalledBack, [u64::from(ends_early)]),
                Message { kind, words } => {
                    assert_eq!(kind, Kind::Returned);
                    break words[0] == 1;
                }
            }
        }
    };
    let holds = HoldsForRunner::new(session.gate);
    let (outcome, _, ()) = during(Some(Duration::from_secs(100)), |runner| {
        // A callback that ends early: nothing takes the ones after it, and the runner goes on.
        assert!(!pour(runner, true));
        assert_eq!(
            (LIVING.load(Relaxed), MOST.swap(0, Relaxed)),
            (2, 2),
            "one for the callback, one returned"
        );
        // It keeps what it is given.
        for _ in 0..3 {
            assert!(pour(runner, false));
            assert!((1024..=1025).contains(&MOST.load(Relaxed)), "{MOST:?}");
        }
        runner.say(Kind::Done, [EXECUTED, 0]);
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(LIVING.load(Relaxed), 1024);
    drop(holds);
    assert_eq!(LIVING.load(Relaxed), 0);
}

#[test]
fn an_object_is_not_borrowed_twice_by_calls_that_nest() {
    let guard = |runner: &mut Runner| {
        runner.call(GUARDS, &[[0, 0], [0, 0], [1, 0]]);
        assert_eq!(runner.hears(Kind::Returned)[0], 0);
        runner.units::<2>()[1][0]
    };
    let (outcome, _, ()) = during(None, |runner| {
        runner.call(GUARDS, &[[0, 0], [0, 0], [0, 0]]);
        runner.hears(Kind::Returned);
        assert_eq!(runner.units::<2>(), [[7, 0], [0, 0]], "an error gives no object");
        let words = [guard(runner), guard(runner)];
        assert_ne!(words[0], words[1]);
        // Two objects, one within a callback of the other.
        for word in words {
            runner.call(VISITS_GUARDED, &[[0, 0], [word, 0], [10, 11]]);
            runner.hears(Kind::CallBack);
        }
        for _ in words {
            runner.say(Kind::CalledBack, [0]);
            runner.hears(Kind::Returned);
        }
        // The same one.
        runner.call(VISITS_GUARDED, &[[0, 0], [words[0], 0], [10, 11]]);
        runner.hears(Kind::CallBack);
        runner.call(VISITS_GUARDED, &[[0, 0], [words[0], 0], [10, 11]]);
    });
    ends_for(outcome, Failure::Fault, "borrowed already");
    let (outcome, _, ()) = during(None, |runner| {
        let word = guard(runner);
        runner.call(VISITS_GUARDED, &[[0, 0], [word + 1, 0], [10, 11]]);
    });
    ends_for(
        outcome,
        Failure::Fault,
        "an object that its invocation does not hold",
    );
}
