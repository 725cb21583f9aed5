//! Interfaces, callbacks and objects of the host, in runner processes beside the target's own: the same images, equal answers.

#![allow(
    clippy::type_complexity,
    reason = "a callback's type is what an author writes"
)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use ifunc::Owned;
use ifunc_rt::{Error, Failure, Level, Policy, RunnerOptions, Serving, Source, Target};
use ifunc_tests_ifuncs::kv::{ENDS, k_best, k_ends, k_forgets, k_nested, k_pair, k_put, k_scan};

use crate::common::{library, unique_shm};

type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// As the host has it: nothing is shared but the signatures.
#[ifunc::interface]
trait Kv {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, i32>;
    fn len_of(&self, key: &[u8]) -> Option<u64>;
    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>);
    fn best(&self, prefix: &[u8], of: &dyn Fn(&str, f64, &mut [u64; 2]) -> Option<u64>) -> u64;
}

#[derive(ifunc::Opaque, Default)]
#[opaque(interfaces)]
struct Store {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Scans that returned, and callbacks of them that broke.
    scans: AtomicU64,
    breaks: AtomicU64,
}

impl Store {
    fn with_prefix(&self, prefix: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.map.iter().filter(move |(key, _)| key.starts_with(prefix))
    }
}

impl Kv for Store {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, i32> {
        if key.is_empty() {
            return Err(7);
        }
        self.map.insert(key.into(), value.into());
        Ok(self.map.len() as u64)
    }

    fn len_of(&self, key: &[u8]) -> Option<u64> {
        Some(self.map.get(key)?.len() as u64)
    }

    fn scan(&self, prefix: &[u8], each: Each<'_>) {
        for (key, value) in self.with_prefix(prefix) {
            if each(key, value).is_break() {
                self.breaks.fetch_add(1, SeqCst);
                break;
            }
        }
        self.scans.fetch_add(1, SeqCst);
    }

    fn best(&self, prefix: &[u8], of: &dyn Fn(&str, f64, &mut [u64; 2]) -> Option<u64>) -> u64 {
        let mut notes = [0, 0];
        let found = self.with_prefix(prefix).filter_map(|(key, _)| {
            notes[0] += 10;
            of(str::from_utf8(key).unwrap(), key.len() as f64 * 1.5, &mut notes)
        });
        let best = found.max().unwrap_or_default();
        best * 1000 + notes[1]
    }
}

/// Objects that live.
static LIVE: AtomicI64 = AtomicI64::new(0);

#[derive(ifunc::Opaque)]
#[opaque("counting/1")]
struct Counting(u64);

impl Drop for Counting {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, SeqCst);
    }
}

#[ifunc::export]
fn counting_from(number: u64) -> Owned<Counting> {
    LIVE.fetch_add(1, SeqCst);
    Owned::new(Counting(number))
}

#[ifunc::export]
fn counting_each(counting: &mut Counting, each: &mut dyn FnMut(u64) -> ControlFlow<()>) {
    while each(counting.0).is_continue() {
        counting.0 += 1;
    }
}

#[ifunc::export]
fn counting_pair(number: u64, with: &mut dyn FnMut(&mut Counting, Owned<Counting>)) {
    LIVE.fetch_add(1, SeqCst);
    let mut lent = Counting(number);
    with(&mut lent, counting_from(number + 30));
    // It counted in the host's own memory.
    assert!(lent.0 >= 12);
}

#[ifunc::export]
fn counting_end(counting: Owned<Counting>) -> u64 {
    counting.0 + 1
}

/// A target over shared memory, and a source of it.
struct Served {
    source: Source,
    serving: Serving<Store>,
}

impl Served {
    fn at(level: Level, run_time: Duration, store: Store) -> Option<Self> {
        // SAFETY: the tests of this user, who may do here whatever they like.
        let policy = unsafe { Policy::trust_same_user() }
            .level(level)
            // Any program that is its own runner program.
            .runners(RunnerOptions::new().program(env!("CARGO_BIN_EXE_e2e-target")))
            .max_run_time(run_time);
        let address = unique_shm("its target is in the process of the test")?;
        let builder = Target::builder()
            .policy(policy)
            .export_interface::<dyn Kv, Store>();
        let serving = builder.listen(&address).unwrap().spawn(store).unwrap();
        Some(Self {
            source: Source::connect(&address).unwrap(),
            serving,
        })
    }

    /// What the same calls answer.
    fn answers(&self) -> Vec<Vec<u8>> {
        let source = &self.source;
        let put = source.register_path::<k_put>(library("k_put")).unwrap();
        let scan = source.register_path::<k_scan>(library("k_scan")).unwrap();
        let nested = source.register_path::<k_nested>(library("k_nested")).unwrap();
        let best = source.register_path::<k_best>(library("k_best")).unwrap();
        let number = |answer: u64| answer.to_le_bytes().to_vec();
        let mut answers = Vec::new();
        for key in ["a", "ab", "abc", "b", ""] {
            answers.push(number(put.call(key.as_bytes()).unwrap().wait().unwrap()));
        }
        for prefix in ["a", "", "b", "no such key"] {
            let prefix = prefix.as_bytes();
            answers.push(scan.call(prefix).unwrap().wait_bytes().unwrap());
            answers.push(number(nested.call(prefix).unwrap().wait().unwrap()));
            answers.push(number(best.call(prefix).unwrap().wait().unwrap()));
        }
        answers
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn an_interface_with_callbacks_answers_in_a_process_what_it_answers_in_the_target() {
    let at = |level| Some(Served::at(level, LONG, Store::default())?.answers());
    let (Some(here), Some(there)) = (at(Level::Contained), at(Level::Process)) else {
        return;
    };
    assert_eq!(there, here);
    let number = |at: usize| u64::from_le_bytes(*here[at].first_chunk().unwrap());
    assert_eq!([0, 3, 4].map(number), [1, 4, u64::MAX]);
    assert_eq!(
        here[5], b"a\x08ab\x08abc\x08",
        "all keys, and the lengths of their values"
    );
    assert_eq!(here[8], here[5], "it breaks after six bytes");
    // Three keys, each beside those that are not greater; the best weight, and what the callbacks noted.
    assert_eq!([6, 7].map(number), [6, 45_000 + 11 + 21 + 31]);
}

/// However a callback ends, the functions of the host around it return, objects are dropped once, and the call is told.
#[test]
fn callbacks_end_in_every_way_in_a_process_and_in_the_target() {
    for level in [Level::Contained, Level::Process] {
        let store = Store {
            map: ["a", "ab", "b"].map(|key| (key.into(), vec![7])).into(),
            ..Store::default()
        };
        let Some(served) = Served::at(level, Duration::from_millis(300), store) else {
            return;
        };
        let ends = served.source.register_path::<k_ends>(library("k_ends")).unwrap();
        for (way, what) in ENDS.iter().enumerate() {
            // In the target, nothing denies system calls.
            if way == 4 && level == Level::Contained {
                continue;
            }
            for _ in 0..2 {
                let outcome = loop {
                    match ends.call(&(way as u64)).unwrap().wait() {
                        // A busy machine stopped one of the processes for as long.
                        Err(Error::Failed {
                            why: Failure::Deadline,
                            ..
                        }) if way != 3 => {}
                        outcome => break outcome,
                    }
                };
                assert_eq!(LIVE.load(SeqCst), 0, "{what}");
                ended(level, way, outcome);
            }
        }
        let pair = served.source.register_path::<k_pair>(library("k_pair")).unwrap();
        assert_eq!(pair.call(&10).unwrap().wait().unwrap(), (10 + 11 + 12) * 100 + 41);
        assert_eq!(pair.call(&11).unwrap().wait().unwrap(), 11 + 12);
        match pair.call(&12).unwrap().wait() {
            Err(Error::Panic { message, .. }) => assert_eq!(message, "nothing to count"),
            other => panic!("{other:?}"),
        }
        assert_eq!(LIVE.load(SeqCst), 0, "{level:?}");
        // What an ifunc forgets is leaked in the target, and dropped where the ifunc is not trusted that much.
        let forgets = served
            .source
            .register_path::<k_forgets>(library("k_forgets"))
            .unwrap();
        assert_eq!(forgets.call(&5).unwrap().wait().unwrap(), 5);
        assert_eq!(LIVE.swap(0, SeqCst), i64::from(level == Level::Contained));
        drop((ends, pair, forgets, served.source));
        let store = served.serving.stop().unwrap();
        // Each scan with a callback that ended early saw it break, and returned.
        assert_eq!(store.scans.load(SeqCst), store.breaks.load(SeqCst));
    }
}

/// What the source is told of a callback that ended in this way.
fn ended(level: Level, way: usize, outcome: Result<u64, Error>) {
    let is_process = level == Level::Process;
    match (way, outcome) {
        (0, Err(Error::Panic { message, .. })) => assert_eq!(message, "the callback saw 2 keys"),
        (1, Err(Error::Panic { message, .. })) => assert_eq!(message, "below two scans"),
        (5, Ok(answer)) => assert_eq!(answer, (2 + 10 + 11 + 12) * 100 + 13),
        (2, Err(Error::Failed { why, detail, .. })) => {
            assert!(why == Failure::Fault && detail.contains("SIGSEGV"), "{detail}");
        }
        (3, Err(Error::Failed { why, .. })) => assert_eq!(why, Failure::Deadline),
        (4, Err(Error::Failed { why, detail, .. })) => {
            assert!(why == Failure::Fault && detail.contains("`fork`"), "{detail}");
        }
        (6, Err(Error::Failed { why, detail, .. })) if is_process => {
            assert!(
                why == Failure::HostPanic && detail.contains("nested too deep"),
                "{detail}"
            );
        }
        (6, Err(Error::Failed { why, .. })) => assert_eq!(why, Failure::StackLow),
        (way, outcome) => panic!("{}: {outcome:?}", ENDS[way]),
    }
}

#[test]
fn a_callback_runs_for_each_of_many_elements() {
    let keys = 0..30_u8;
    let store = Store {
        map: keys.map(|key| (vec![key], vec![key])).collect(),
        ..Store::default()
    };
    let Some(served) = Served::at(Level::Process, LONG, store) else {
        return;
    };
    let nested = served
        .source
        .register_path::<k_nested>(library("k_nested"))
        .unwrap();
    // A callback for each, below it another one for each, and there a function of the host.
    assert_eq!(nested.call(&b""[..]).unwrap().wait().unwrap(), 30 * 31 / 2);
    drop((nested, served.source));
    let store = served.serving.stop().unwrap();
    assert_eq!((store.scans.into_inner(), store.breaks.into_inner()), (31, 0));
}
