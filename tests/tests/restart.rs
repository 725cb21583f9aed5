//! Targets that die, and come back.

mod common;

use std::time::{Duration, Instant};

use common::{Process, connect, library, unique};
use ifunc_rt::{Error, Source, SourceOptions};
use ifunc_tests_ifuncs::{t_add, t_slow, t_slow_again};

#[test]
fn the_next_send_does_not_notice_a_restart() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let source = connect(&address);
    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    add.send(&1).unwrap();
    assert_eq!(add.call(&1).unwrap().wait().unwrap(), 2);
    for round in 0..5 {
        target.kill();
        target = Process::target(&address);
        add.send(&(round + 10))
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        source.flush().unwrap();
        target.wait_for(&format!("counter: {}", round + 10));
    }
}

#[test]
fn a_call_in_flight_is_indeterminate_unless_it_may_run_again() {
    let Some(address) = unique() else { return };
    let mut target = Process::roomy_target(&address);
    let source = connect(&address);
    let slow = source.register_path::<t_slow>(library("t_slow")).unwrap();
    let again = source
        .register_path::<t_slow_again>(library("t_slow_again"))
        .unwrap();
    let running = slow.call(&60_000).unwrap();
    let waiting = slow.call(&0).unwrap();
    let repeatable = again.call(&1).unwrap();
    target.wait_for("taking 60000 ms");
    target.kill();
    let killed = Instant::now();
    assert!(matches!(running.wait(), Err(Error::Indeterminate { .. })));
    assert!(matches!(waiting.wait(), Err(Error::Indeterminate { .. })));
    assert!(
        killed.elapsed() < Duration::from_secs(10),
        "noticed after {:?}",
        killed.elapsed()
    );
    let mut target = Process::target(&address);
    assert_eq!(repeatable.wait().unwrap(), 0);
    target.wait_for("taking 1 ms");
}

#[test]
fn a_target_that_stays_away_is_reported_in_time() {
    let Some(address) = unique() else { return };
    let mut target = Process::target(&address);
    let options = SourceOptions::default().reconnect(Duration::from_millis(200));
    let source = Source::connect_with(&address, options).unwrap();
    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    add.call(&1).unwrap().wait().unwrap();
    target.kill();
    let began = Instant::now();
    // The end may be noticed only after this was sent; then it may have run.
    match add.call(&1).and_then(ifunc_rt::Call::wait) {
        Err(Error::PeerGone { .. } | Error::Indeterminate { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(add.call(&1), Err(Error::PeerGone { .. })));
    assert!(began.elapsed() < Duration::from_secs(20));
    match Source::connect(&address) {
        Err(error) => assert!(error.to_string().contains("no target listens"), "{error}"),
        Ok(_) => panic!("connected to a dead target"),
    }
}

#[test]
fn sources_that_are_killed_leave_nothing_and_harm_nobody() {
    let Some(address) = unique() else { return };
    let target = Process::target(&address);
    let source = connect(&address);
    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    add.call(&1).unwrap().wait().unwrap();
    // The target may still be closing a descriptor of the handshake: the state is taken once it stays the same.
    let mut before = target.holds();
    let mut unchanged = 0;
    while unchanged < 20 {
        add.call(&1).unwrap().wait().unwrap();
        let now = target.holds();
        unchanged = if now == before { unchanged + 1 } else { 0 };
        before = now;
    }
    for _ in 0..5 {
        let mut victim = Process::start(
            std::process::Command::new(env!("CARGO_BIN_EXE_e2e-flood"))
                .env("IFUNC_ADDR", &address)
                .arg(library("t_add")),
        );
        victim.wait_for("flooding");
        victim.kill();
        add.call(&1).unwrap().wait().unwrap();
    }
    // What it holds of the dead goes as soon as the target has run what they had sent.
    let deadline = Instant::now() + common::TIMEOUT;
    while target.holds() != before {
        assert!(
            Instant::now() < deadline,
            "{before:?} became {:?}",
            target.holds()
        );
        add.call(&1).unwrap().wait().unwrap();
    }
}
