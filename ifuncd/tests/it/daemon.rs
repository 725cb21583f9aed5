//! Signals, and the end of the process.

use std::time::{Duration, Instant};

use ifunc_rt::keys::{SecretKey, Signatures};
use ifunc_rt::{Error, Rejection};
use ifuncd_interfaces::NodeError;
use ifuncd_tests_ifuncs::{d_all, d_count, d_get, d_put, d_spin, d_sum, d_time};
use rustix::process::Signal;

use super::capabilities::error;
use super::running::{Daemon, OWN, connect, handle};

/// Calls until a call is refused: a target applies its policy within a few polls.
fn until_refused<T: std::fmt::Debug>(call: impl Fn() -> Result<T, Error>) -> (Rejection, String) {
    let deadline = Instant::now() + super::running::TIMEOUT;
    loop {
        match call() {
            Err(Error::Rejected { why, detail, .. }) => return (why, detail),
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_configuration_that_is_read_again_holds_at_once() {
    let daemon = Daemon::start("process", OWN);
    let source = daemon.connect();
    let put = handle::<d_put>(&source, "d_put");
    let put = || put.call(&(b"k".as_slice(), b"v".as_slice())).unwrap().wait();
    assert_eq!(put().unwrap(), 0);
    std::fs::write(daemon.path("data/file"), b"0123456789").unwrap();
    let all = handle::<d_all>(&source, "d_all");
    // What reading a file and what storing it returned.
    let all = || {
        let [read, stored, ..] = all.call("file").unwrap().wait().unwrap();
        (read, stored)
    };
    assert_eq!(all(), (10, 0));
    let denied = error(NodeError::Denied);
    let less = OWN.replace("\"store\", ", "");
    daemon.write(&less, "");
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("the configuration was read again");
    // An image that may use nothing of what it needs is released, and refused. One that may use some of it stays; the other calls of
    // it are refused.
    let other = daemon.connect();
    let other = handle::<d_put>(&other, "d_put");
    let other = || other.call(&(b"k".as_slice(), b"v".as_slice())).unwrap().wait();
    for (why, detail) in [until_refused(put), until_refused(other)] {
        assert!(
            why == Rejection::Policy && detail.contains("the image uses `store`"),
            "{why}: {detail}"
        );
    }
    assert_eq!(all(), (10, denied));
    // A file with a mistake changes nothing, nor does one that changes what is fixed.
    daemon.write(&OWN.replace("unsigned", "unsinged"), "");
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("`peer.unsinged`: unknown field `unsinged`");
    assert_eq!(all(), (10, denied));
    daemon.write(OWN, "threads = 7\n");
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("`listen.threads` cannot change while the daemon runs");
    assert_eq!(all(), (10, denied));
    daemon.write(OWN, "");
    daemon.signal(Signal::HUP);
    while all() != (10, 0) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn code_of_a_signer_that_is_removed_runs_no_more() {
    let key = |name: &str| SecretKey::generate(name).unwrap();
    let (builds, other) = (key("builds"), key("other"));
    let signer = |name: &str, key: &SecretKey| {
        format!("[[signer]]\nname = \"{name}\"\npublic = \"{}\"\n", key.public())
    };
    // Of another peer, unsigned code runs: the runtime itself would accept that of all.
    let peers = "[[peer]]\nname = \"trusted\"\nuser = 12345\ncapabilities = []\nunsigned = true\n\
                 [[peer]]\nname = \"own\"\nuser = \"own\"\ncapabilities = [\"time\"]\n";
    let both = format!("{peers}{}{}", signer("builds", &builds), signer("other", &other));
    for (changed, reason) in [
        (format!("{peers}{}", signer("other", &other)), "signed code only"),
        (
            both.replace("[\"time\"]", "[\"time\"]\nsigners = [\"other\"]"),
            "may not send code that `builds` signed",
        ),
    ] {
        let daemon = Daemon::start("process", &both);
        let source = daemon.connect();
        let mut signatures = Signatures::default();
        signatures.add(builds.sign(handle::<d_time>(&daemon.connect(), "d_time").id()));
        source.add_signatures(&signatures);
        let time = handle::<d_time>(&source, "d_time");
        assert!(time.call(&0).unwrap().wait().is_ok());
        daemon.write(&changed, "");
        daemon.signal(Signal::HUP);
        daemon.wait_for_log("the configuration was read again");
        let (why, detail) = until_refused(|| time.call(&0).unwrap().wait());
        assert!(
            why == Rejection::Policy && detail.contains(reason),
            "{why}: {detail}"
        );
        assert_eq!(daemon.metric("ifuncd_images_total{peer=\"own\"}"), 1.0);
    }
}

#[test]
fn the_audit_log_is_opened_again() {
    let daemon = Daemon::start(
        "contained",
        "[[peer]]\nname = \"other\"\nuser = 12345\ncapabilities = []\nunsigned = true\n",
    );
    let refused = |daemon: &Daemon| {
        let refused = handle::<d_sum>(&daemon.connect(), "d_sum")
            .call(&[1])
            .unwrap()
            .wait();
        assert!(matches!(refused, Err(Error::Rejected { .. })), "{refused:?}");
    };
    refused(&daemon);
    assert!(!daemon.audit().is_empty());
    std::fs::rename(daemon.path("audit.jsonl"), daemon.path("audit.1")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("the configuration was read again");
    refused(&daemon);
    assert!(
        daemon
            .audit()
            .iter()
            .any(|line| line.to_string().contains("d_sum"))
    );
}

#[test]
fn a_daemon_that_stops_runs_what_was_sent() {
    for level in ["contained", "process"] {
        let mut daemon = Daemon::start(level, OWN);
        let source = daemon.connect();
        let spin = handle::<d_spin>(&source, "d_spin");
        assert_eq!(spin.call(&0).unwrap().wait().unwrap(), 0);
        let calls: Vec<_> = (0..10).map(|_| spin.call(&100).unwrap()).collect();
        // It has begun.
        while daemon.metric("ifuncd_in_flight{peer=\"own\"}") == 0.0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon.signal(Signal::TERM);
        for call in calls {
            assert_eq!(call.wait().unwrap(), 100);
        }
        assert!(daemon.wait().success(), "{}", daemon.log());
        assert!(daemon.log().contains("stopped"), "{}", daemon.log());
    }
}

#[test]
fn a_source_that_connects_while_the_daemon_stops_finds_the_next_one() {
    let mut daemon = Daemon::start("contained", OWN);
    let source = daemon.connect();
    let spin = handle::<d_spin>(&source, "d_spin");
    assert_eq!(spin.call(&0).unwrap().wait().unwrap(), 0);
    let running = spin.call(&2000).unwrap();
    while daemon.metric("ifuncd_in_flight{peer=\"own\"}") == 0.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("stopping");
    let address = daemon.address.clone();
    let next = std::thread::spawn(move || {
        let options = ifunc_rt::SourceOptions::default().connect_timeout(super::running::TIMEOUT);
        let began = Instant::now();
        loop {
            // Between the two, nothing listens.
            match ifunc_rt::Source::connect_with(&address, options.clone()) {
                Ok(source) => return source,
                Err(error) => assert!(began.elapsed() < super::running::TIMEOUT, "{error}"),
            }
        }
    });
    assert_eq!(running.wait().unwrap(), 2000);
    assert!(daemon.wait().success());
    assert!(
        !next.is_finished(),
        "it connected to a daemon that was about to stop"
    );
    daemon.run();
    let source = next.join().unwrap();
    assert!(
        handle::<d_time>(&source, "d_time")
            .call(&0)
            .unwrap()
            .wait()
            .is_ok()
    );
}

#[test]
fn a_daemon_that_stops_waits_no_longer_than_it_should() {
    let mut daemon = Daemon::prepare("contained");
    daemon.write(OWN, "drain = \"500ms\"\n");
    daemon.run();
    let source = daemon.connect();
    let spin = handle::<d_spin>(&source, "d_spin");
    assert_eq!(spin.call(&0).unwrap().wait().unwrap(), 0);
    let long = spin.call(&8000).unwrap();
    while daemon.metric("ifuncd_in_flight{peer=\"own\"}") == 0.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(daemon.log().contains("did not end in time"), "{}", daemon.log());
    assert!(matches!(long.wait(), Err(Error::Indeterminate { .. })));
}

#[test]
fn clients_go_on_when_the_daemon_is_killed_and_started_again() {
    let mut daemon = Daemon::start("process", OWN);
    let source = daemon.connect();
    let put = handle::<d_put>(&source, "d_put");
    let get = handle::<d_get>(&source, "d_get");
    let count = handle::<d_count>(&source, "d_count");
    assert_eq!(
        put.call(&(b"kept".as_slice(), [7].as_slice()))
            .unwrap()
            .wait()
            .unwrap(),
        0
    );
    assert_eq!(count.call(&("region", 8, 1)).unwrap().wait().unwrap(), (0, 0));
    // Changes are on the disk within about a second.
    std::thread::sleep(Duration::from_millis(2500));
    for _ in 0..3 {
        daemon.kill();
        daemon.run();
        // The source connects again, and sends its code again.
        let found = loop {
            match get.call(b"kept").and_then(ifunc_rt::Call::wait) {
                Ok(found) => break found,
                // The end may be noticed only after this was sent.
                Err(Error::Indeterminate { .. } | Error::PeerGone { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(found, (1, 7));
        // Regions live as long as the daemon.
        assert_eq!(count.call(&("region", 8, 1)).unwrap().wait().unwrap(), (0, 0));
    }
}

#[test]
fn systemd_is_told() {
    use std::os::unix::net::UnixDatagram;
    let mut daemon = Daemon::prepare("contained");
    daemon.write(OWN, "");
    let socket = UnixDatagram::bind(daemon.path("notify")).unwrap();
    socket.set_read_timeout(Some(super::running::TIMEOUT)).unwrap();
    daemon.env.push(("NOTIFY_SOCKET", daemon.path("notify")));
    daemon.run();
    let heard = || {
        let mut bytes = [0; 256];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    assert_eq!(heard(), "READY=1");
    daemon.signal(Signal::HUP);
    let reloading = heard();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(heard(), "READY=1");
    daemon.signal(Signal::TERM);
    assert_eq!(heard(), "STOPPING=1");
    assert!(daemon.wait().success());
}

#[test]
fn two_daemons_do_not_share_a_store() {
    let daemon = Daemon::start("contained", OWN);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ifuncd"))
        .arg("--config")
        .arg(daemon.path("ifuncd.toml"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(why.contains("cannot open the store"), "{why}");
    // And the first one serves on.
    assert!(
        handle::<d_time>(&connect(&daemon.address), "d_time")
            .call(&0)
            .unwrap()
            .wait()
            .is_ok()
    );
}
