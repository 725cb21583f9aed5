//! What a source may not do is refused, counted and written down.

use std::time::{Duration, Instant};

use ifunc_rt::keys::SecretKey;
use ifunc_rt::{Error, Failure, Rejection};
use ifuncd_interfaces::NodeError;
use ifuncd_tests_ifuncs::{d_all, d_count, d_get, d_hurry, d_put, d_spin, d_sum, d_time, d_write};

use super::capabilities::error;
use super::running::{Daemon, handle};

fn own(more: &str) -> String {
    format!("[[peer]]\nname = \"own\"\nuser = \"own\"\n{more}")
}

/// Whether the audit log has a line with these texts.
fn is_audited(daemon: &Daemon, texts: &[&str]) -> bool {
    daemon.audit().iter().any(|line| {
        let line = line.to_string();
        texts.iter().all(|text| line.contains(text))
    })
}

/// Waits until the audit log counts so many refusals of this, which the daemon counts, too. No more follow.
pub(crate) fn assert_audited(daemon: &Daemon, refused: &str, count: f64) {
    let counted = format!("ifuncd_refusals_total{{refused=\"{refused}\"}}");
    assert_eq!(daemon.metric(&counted), count);
    let audited = || -> u64 {
        let lines = daemon.audit();
        let lines = lines.iter().filter(|line| line["refused"] == refused);
        lines
            .map(|line| 1 + line["suppressed"].as_u64().unwrap_or(0))
            .sum()
    };
    let began = Instant::now();
    while (audited() as f64) < count && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(audited() as f64, count, "{refused}");
}

#[test]
fn a_capability_that_a_peer_lacks_is_refused() {
    for level in ["contained", "process"] {
        let daemon = Daemon::start(
            level,
            &own("capabilities = [\"files\", \"memory\"]\nunsigned = true\n"),
        );
        std::fs::write(daemon.path("data/file"), b"0123456789").unwrap();
        let source = daemon.connect();
        // All that this image uses is refused, so the image is.
        let refused = handle::<d_put>(&source, "d_put")
            .call(&(b"k".as_slice(), b"v".as_slice()))
            .unwrap()
            .wait();
        let Err(Error::Rejected { why, detail, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(why, Rejection::Policy);
        assert!(
            detail.contains("the peer `own` may use `files`, `memory`, and the image uses `store`"),
            "{detail}"
        );
        // Some of what this one uses is not, so each call answers for itself.
        let denied = error(NodeError::Denied);
        let all = handle::<d_all>(&source, "d_all")
            .call("file")
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(all, [10, denied, 0, denied, denied, denied]);
        let write = handle::<d_write>(&source, "d_write")
            .call(&("new", b"x".as_slice()))
            .unwrap()
            .wait();
        assert_eq!(write.unwrap(), denied);
        assert!(is_audited(
            &daemon,
            &["\"peer\":\"own\"", "image refused", "d_put"]
        ));
        for capability in ["store", "time", "random", "log", "files"] {
            assert!(
                is_audited(
                    &daemon,
                    &[
                        "call refused",
                        "Denied",
                        &format!("\"capability\":\"{capability}\"")
                    ]
                ),
                "{capability}"
            );
        }
        assert_eq!(daemon.metric("ifuncd_refused_images_total{peer=\"own\"}"), 1.0);
        assert_eq!(daemon.metric("ifuncd_refused_calls_total{peer=\"own\""), 5.0);
        assert_eq!(daemon.metric("ifunc_refused_total"), 1.0);
        assert_audited(&daemon, "image", 1.0);
        assert_audited(&daemon, "invocation", daemon.metric("ifunc_rejected_total"));
        assert_audited(&daemon, "call", 5.0);
    }
}

#[test]
fn a_user_without_a_peer_runs_nothing() {
    let daemon = Daemon::start(
        "contained",
        "[[peer]]\nname = \"other\"\nuser = 12345\ncapabilities = []\nunsigned = true\n",
    );
    let source = daemon.connect();
    let refused = handle::<d_sum>(&source, "d_sum").call(&[1]).unwrap().wait();
    let Err(Error::Rejected { why, detail, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(why, Rejection::Policy);
    assert!(
        detail.contains("no `[[peer]]` of this ifuncd's configuration has the user"),
        "{detail}"
    );
    assert!(is_audited(&daemon, &["no `[[peer]]`", "d_sum"]));
}

#[test]
fn unsigned_code_runs_only_of_peers_that_may_send_it() {
    let key = SecretKey::generate("builds").unwrap().public();
    let signer = format!("[[signer]]\nname = \"builds\"\npublic = \"{key}\"\n");
    let daemon = Daemon::start("contained", &(own("capabilities = [\"time\"]\n") + &signer));
    let source = daemon.connect();
    let refused = handle::<d_time>(&source, "d_time").call(&0).unwrap().wait();
    let Err(Error::Rejected { why, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(why, Rejection::Signature);
    assert!(is_audited(&daemon, &["image refused", "d_time", "is not signed"]));
}

#[test]
fn quotas_bound_what_a_peer_uses() {
    for level in ["contained", "process"] {
        let quotas = "capabilities = [\"store\", \"memory\", \"time\"]\nunsigned = true\n[peer.quotas]\nstore-bytes = 100\nmemory-bytes = \"4 KiB\"\nimages = 4\n";
        let daemon = Daemon::start(level, &own(quotas));
        let source = daemon.connect();
        let put = handle::<d_put>(&source, "d_put");
        let put = |key: &[u8], value: &[u8]| put.call(&(key, value)).unwrap().wait().unwrap();
        let quota = error(NodeError::Quota);
        assert_eq!((put(b"a", &[0; 60]), put(b"b", &[0; 60])), (0, quota));
        // Nothing of it was stored, and a smaller value takes the place of the first one.
        assert_eq!(
            handle::<d_get>(&source, "d_get")
                .call(b"b")
                .unwrap()
                .wait()
                .unwrap()
                .0,
            error(NodeError::NotFound)
        );
        assert_eq!(
            (put(b"a", &[0; 10]), put(b"b", &[0; 60]), put(b"c", &[0; 60])),
            (0, 0, quota)
        );
        let count = handle::<d_count>(&source, "d_count");
        let count = |name: &str, len: u64| count.call(&(name, len, 1)).unwrap().wait().unwrap().0;
        assert_eq!((count("a", 3000), count("b", 3000), count("b", 8)), (0, quota, 0));
        assert_eq!(daemon.metric("ifuncd_store_bytes{peer=\"own\"}"), 72.0);
        assert_eq!(
            daemon.metric("ifuncd_memory_bytes{peer=\"own\"}"),
            3000.0 + 8.0 + 2.0 * 512.0
        );
        assert!(is_audited(&daemon, &["call refused", "Quota", "store-bytes"]));
        // The images of all connections of the peer count together.
        let other = daemon.connect();
        let (first, second, third) = (
            handle::<d_time>(&other, "d_time"),
            handle::<d_spin>(&other, "d_spin"),
            handle::<d_hurry>(&other, "d_hurry"),
        );
        assert!(first.call(&0).unwrap().wait().is_ok() && second.call(&0).unwrap().wait().is_ok());
        let refused = third.call(&1).unwrap().wait();
        let Err(Error::Rejected {
            why: Rejection::Quota,
            detail,
            ..
        }) = refused
        else {
            panic!("{refused:?}")
        };
        assert!(
            detail.contains("the peer `own` may have 4 images bound at a time"),
            "{detail}"
        );
    }
}

#[test]
fn calls_and_invocations_have_rates() {
    let rates = "capabilities = [\"time\"]\nunsigned = true\n[peer.quotas]\ncalls-per-second = 100\ninvocations-per-second = 10\n";
    let daemon = Daemon::start("contained", &own(rates));
    let source = daemon.connect();
    let hurry = handle::<d_hurry>(&source, "d_hurry");
    let (done, why) = hurry.call(&1_000_000).unwrap().wait().unwrap();
    assert_eq!(why, error(NodeError::Rate));
    assert!((100..10_000).contains(&done), "{done}");
    let mut rejected = 0;
    for _ in 0..200 {
        match hurry.call(&0).unwrap().wait() {
            Ok(_) => {}
            Err(Error::Rejected {
                why: Rejection::Quota,
                detail,
                ..
            }) => {
                assert!(
                    detail.contains("the peer `own` may begin 10 invocations per second"),
                    "{detail}"
                );
                rejected += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(rejected > 50, "{rejected}");
    assert_eq!(daemon.metric("ifunc_rejected_total"), f64::from(rejected));
    assert_audited(&daemon, "invocation", f64::from(rejected));
    assert_audited(&daemon, "call", daemon.metric("ifuncd_refused_calls_total"));
    assert!(
        is_audited(&daemon, &["call refused", "Rate"])
            && is_audited(&daemon, &["invocation refused", "invocations_per_second"])
    );
}

#[test]
fn as_many_invocations_run_as_a_peer_may_have() {
    let quotas = "capabilities = [\"time\"]\nunsigned = true\n[peer.quotas]\nin-flight = 1\n";
    let daemon = Daemon::start("contained", &own(quotas));
    let (one, other) = (daemon.connect(), daemon.connect());
    let (one, other) = (
        handle::<d_spin>(&one, "d_spin"),
        handle::<d_spin>(&other, "d_spin"),
    );
    assert_eq!(other.call(&0).unwrap().wait().unwrap(), 0);
    let long = one.call(&3000).unwrap();
    while daemon.metric("ifuncd_in_flight{peer=\"own\"}") == 0.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let refused = other.call(&0).unwrap().wait();
    let Err(Error::Rejected {
        why: Rejection::Quota,
        detail,
        ..
    }) = refused
    else {
        panic!("{refused:?}")
    };
    assert!(detail.contains("may have 1 invocation in flight"), "{detail}");
    assert_eq!(long.wait().unwrap(), 3000);
    assert_eq!(other.call(&0).unwrap().wait().unwrap(), 0);
}

#[test]
fn invocations_run_for_as_long_as_a_peer_may() {
    for level in ["contained", "process"] {
        let quotas = "capabilities = [\"time\"]\nunsigned = true\n[peer.quotas]\nrun-time = \"60ms\"\nrun-time-per-second = \"40ms\"\n";
        let daemon = Daemon::start(level, &own(quotas));
        let source = daemon.connect();
        let spin = handle::<d_spin>(&source, "d_spin");
        let began = Instant::now();
        let overdue = spin.call(&10_000).unwrap().wait();
        let Err(Error::Failed {
            why: Failure::Deadline,
            detail,
            ..
        }) = overdue
        else {
            panic!("{overdue:?}")
        };
        assert!(format!("{detail:?}").contains("longer than 60ms"), "{detail:?}");
        // Long before the limit of all peers.
        assert!(began.elapsed() < Duration::from_secs(5));
        // It has used what it may use in a second, and more.
        let refused = spin.call(&0).unwrap().wait();
        let Err(Error::Rejected {
            why: Rejection::Quota,
            detail,
            ..
        }) = refused
        else {
            panic!("{refused:?}")
        };
        assert!(
            detail.contains("the peer `own` may run for 40ms in each second"),
            "{detail}"
        );
    }
}
