//! Over UCX: what a target that dies, comes back or stays away means to those who call it.

mod common;

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, Process, connect, library};
use ifunc_rt::{Error, Source, SourceOptions};
use ifunc_tests_ifuncs::{t_add, t_slow, t_slow_again};

/// An address for a target, unless there is no UCX on this machine; `IFUNC_REQUIRE_UCX` says that there must be.
fn free() -> Option<String> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = format!("ucx://{port}");
    let options = SourceOptions::default().connect_timeout(Duration::ZERO);
    match Source::connect_with(&address, options) {
        Err(error) if error.to_string().contains("cannot open `libuc") => {
            let required = std::env::var_os("IFUNC_REQUIRE_UCX").is_some();
            assert!(!required, "UCX is required here: {error}");
            eprintln!("not tested: {error}");
            None
        }
        Err(error) => {
            assert!(error.to_string().contains("no target listens"), "{error}");
            Some(address)
        }
        Ok(_) => panic!("connected to nobody"),
    }
}

/// A target that takes over the port of one that was killed.
fn target(address: &str) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_e2e-target"));
    command
        .env("IFUNC_ADDR", address)
        .env("UCX_TCP_CM_REUSEADDR", "y");
    Process::start_target(&mut command, address)
}

#[test]
fn the_next_send_does_not_notice_a_restart() {
    let Some(address) = free() else { return };
    let mut there = target(&address);
    let source = connect(&address);
    let add = source.register_path::<t_add>(library("t_add")).unwrap();
    add.send(&1).unwrap();
    assert_eq!(add.call(&1).unwrap().wait().unwrap(), 2);
    for round in 0..3 {
        there.kill();
        there = target(&address);
        add.send(&(round + 10))
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        source.flush().unwrap();
        there.wait_for(&format!("counter: {}", round + 10));
    }
}

#[test]
fn a_call_in_flight_is_indeterminate_unless_it_may_run_again() {
    let Some(address) = free() else { return };
    let mut there = target(&address);
    let source = connect(&address);
    let slow = source.register_path::<t_slow>(library("t_slow")).unwrap();
    let again = source
        .register_path::<t_slow_again>(library("t_slow_again"))
        .unwrap();
    let running = slow.call(&60_000).unwrap();
    let repeatable = again.call(&1).unwrap();
    there.wait_for("taking 60000 ms");
    there.kill();
    let killed = Instant::now();
    assert!(matches!(running.wait(), Err(Error::Indeterminate { .. })));
    assert!(
        killed.elapsed() < PATIENCE / 6,
        "noticed after {:?}",
        killed.elapsed()
    );
    let mut there = target(&address);
    assert_eq!(repeatable.wait().unwrap(), 0);
    there.wait_for("taking 1 ms");
}
