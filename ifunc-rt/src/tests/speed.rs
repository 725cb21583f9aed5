//! Cost of the hot path beside the cost of the machine's cache lines. For changes to the hot path: no test here
//! asserts a time.
//!
//! `cargo test -p ifunc-rt --release --lib -- --ignored --nocapture measured_figures`
//!
//! The other process is this test's executable again; the environment makes it run [`child`].

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_setaffinity};

use super::images::{self, Add};
use super::running::{accepting, source, unique};
use crate::{Handle, Source, Target};

const ROLE: &str = "IFUNC_SPEED_ROLE";
const HERE: &str = "IFUNC_SPEED_HERE";
/// Repetitions of each figure; the median is printed.
const TIMES: usize = 5;

/// Another process. Killed when it is dropped.
struct Other(Child);

impl Other {
    fn start(role: &str, address: &str) -> (Self, String) {
        let test = concat!(module_path!(), "::child").split_once("::").unwrap().1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .envs([(ROLE, role), (HERE, address)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.find_map(|line| line.unwrap().split_once("ready ").map(|(_, at)| at.to_owned()));
        (Self(child), ready.expect("the other process did not start"))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other process does.
#[test]
#[ignore = "role: a part of the measurement here"]
fn child() {
    let (Ok(role), Ok(here)) = (std::env::var(ROLE), std::env::var(HERE)) else {
        return;
    };
    pin(1);
    let mut target = accepting().listen(&unique("shm")).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "ready {}", target.address()).unwrap();
    out.flush().unwrap();
    let mut value = 0u64;
    match role.as_str() {
        "target" => target.serve(&mut value).unwrap(),
        "echo" => {
            let back = source(&here);
            let add = add(&back);
            loop {
                one(&mut target, &mut value);
                add.send(&1).unwrap();
            }
        }
        role => panic!("no role {role}"),
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // A machine with one has no figures worth anything.
    let _ = sched_setaffinity(None, &set);
}

fn add(source: &Source) -> Handle<Add> {
    source
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap()
}

/// Looks until one frame more has come.
fn one(target: &mut Target, value: &mut u64) {
    let before = *value;
    while *value == before {
        target.poll(value);
    }
}

/// The median of some repetitions, in nanoseconds.
fn median(mut once: impl FnMut() -> f64) -> f64 {
    let mut all: Vec<f64> = (0..TIMES).map(|_| once()).collect();
    all.sort_by(f64::total_cmp);
    all[TIMES / 2]
}

fn per(began: Instant, count: u32) -> f64 {
    began.elapsed().as_nanos() as f64 / f64::from(count)
}

#[repr(align(128))]
struct Line(AtomicU64);

/// One transfer of a cache line, in nanoseconds: with one line that both sides write in turn, or one line per
/// direction.
fn floor(lines: &'static [Line; 2], there: usize, back: usize) -> f64 {
    const TURNS: u32 = 200_000;
    lines.iter().for_each(|line| line.0.store(0, Ordering::Relaxed));
    let mut took = 0.0;
    // A child process inherits the CPU affinity.
    pin(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..u64::from(TURNS) {
                while lines[there].0.load(Ordering::Acquire) != 2 * turn + 1 {}
                lines[back].0.store(2 * turn + 2, Ordering::Release);
            }
        });
        pin(0);
        let began = Instant::now();
        for turn in 0..u64::from(TURNS) {
            lines[there].0.store(2 * turn + 1, Ordering::Release);
            while lines[back].0.load(Ordering::Acquire) != 2 * turn + 2 {}
        }
        took = per(began, 2 * TURNS);
    });
    took
}

#[test]
#[ignore = "nightly: a measurement"]
fn measured_figures() {
    static LINES: [Line; 2] = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let only = std::env::var("IFUNC_SPEED_ONLY").unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|only| only == name);
    pin(0);
    if wanted("floor") {
        let turn = median(|| floor(&LINES, 0, 0));
        let two = median(|| floor(&LINES, 0, 1));
        println!("floor-turn {turn:.1} ns\nfloor-two {two:.1} ns");
    }
    if wanted("alone") {
        let (send, run) = alone();
        println!("alone-send {send:.1} ns\nalone-run {run:.1} ns");
    }
    if wanted("rate") || wanted("call") {
        let (_other, address) = Other::start("target", "");
        let source = source(&address);
        let add = add(&source);
        if wanted("rate") {
            println!("rate {:.1} ns", median(|| rate(&source, &add)));
        }
        if wanted("call") {
            println!("call {:.1} ns", median(|| call(&add)));
        }
    }
    if wanted("one-way") {
        let mut target = accepting().listen(&unique("shm")).unwrap();
        let (_other, address) = Other::start("echo", &target.address());
        let source = source(&address);
        let add = add(&source);
        println!("one-way {:.1} ns", median(|| one_way(&mut target, &add)));
    }
}

/// Nanoseconds of a send and of the run of its frame, in sequence on one processor, so that no cache line moves.
fn alone() -> (f64, f64) {
    const BATCH: u32 = 512;
    const BATCHES: u32 = 2000;
    let mut target = accepting().listen(&unique("shm")).unwrap();
    let source = source(&target.address());
    let add = add(&source);
    let mut value = 0u64;
    let run = |target: &mut Target, value: &mut u64, count: u64| {
        let until = *value + count;
        while *value < until {
            target.poll(value);
        }
    };
    add.try_send(&1).unwrap();
    run(&mut target, &mut value, 1);
    let (mut sends, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let began = Instant::now();
        for _ in 0..BATCH {
            add.send(&1).unwrap();
        }
        let sent = Instant::now();
        run(&mut target, &mut value, BATCH.into());
        sends.push((sent - began).as_nanos() as f64 / f64::from(BATCH));
        runs.push(sent.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    for all in [&mut sends, &mut runs] {
        all.sort_by(f64::total_cmp);
    }
    (sends[sends.len() / 2], runs[runs.len() / 2])
}

/// Nanoseconds per send of a fresh payload, until all are consumed.
fn rate(source: &Source, add: &Handle<Add>) -> f64 {
    const SENDS: u32 = 4_000_000;
    source.flush().unwrap();
    let began = Instant::now();
    for payload in 0..u64::from(SENDS) {
        add.send(&payload).unwrap();
    }
    source.flush().unwrap();
    per(began, SENDS)
}

/// Nanoseconds of a call, there and back.
fn call(add: &Handle<Add>) -> f64 {
    const CALLS: u32 = 200_000;
    let began = Instant::now();
    for payload in 0..u64::from(CALLS) {
        add.call(&payload).unwrap().wait().unwrap();
    }
    per(began, CALLS)
}

/// Nanoseconds from a send to its run, with connections in both directions.
fn one_way(target: &mut Target, add: &Handle<Add>) -> f64 {
    const TURNS: u32 = 200_000;
    let mut value = 0;
    let began = Instant::now();
    for _ in 0..TURNS {
        add.send(&1).unwrap();
        one(target, &mut value);
    }
    per(began, 2 * TURNS)
}
