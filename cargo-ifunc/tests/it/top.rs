//! `top` on running, silent, restarting and absent targets.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Killed, checkout, command, ifunc};
use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageParts};
use ifunc_rt::stats::Stats;
use ifunc_rt::{Policy, Serving, Source, SourceOptions, Target, TargetBuilder};

/// An ifunc that returns success (`xor eax, eax ; ret`) or failure (`mov eax, 1 ; ret`) at once.
fn image(name: &str, well: bool) -> Vec<u8> {
    let rx = match well {
        true => vec![0x31, 0xc0, 0xc3],
        false => vec![0xb8, 1, 0, 0, 0, 0xc3],
    };
    let image = ImageParts {
        entries: vec![EntryPart::new(name)],
        arch: ARCH_X86_64,
        rx_align_log2: 4,
        rx,
        ..ImageParts::default()
    };
    image.encode().expect("an image")
}

fn builder() -> TargetBuilder {
    // SAFETY: the images of these tests.
    let policy = unsafe { Policy::trust_every_peer() };
    Target::builder().policy(policy.accept_if(|_, image| image.name != "refused"))
}

fn start(builder: TargetBuilder, address: &str) -> Serving<u64> {
    builder
        .listen(address)
        .expect("a target")
        .spawn(0)
        .expect("a thread")
}

fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("shm:top-test-{}-{number}", std::process::id())
}

/// A UCX address, or `None` if UCX is not installed; with `IFUNC_REQUIRE_UCX` set, its absence is an error.
fn ucx() -> Option<String> {
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("a port");
    let address = format!("ucx://{port}");
    let options = SourceOptions::default().connect_timeout(Duration::ZERO);
    let error = Source::connect_with(&address, options).expect_err("no target listens");
    if error.to_string().contains("cannot open `libuc") {
        assert!(std::env::var_os("IFUNC_REQUIRE_UCX").is_none(), "{error}");
        eprintln!("not tested over UCX: {error}");
        return None;
    }
    Some("ucx://127.0.0.1:0".into())
}

#[test]
fn top_shows_what_sources_sent() {
    for address in [Some(unique()), ucx()].into_iter().flatten() {
        let serving = start(builder(), &address);
        let address = serving.address().to_owned();
        let source = Source::connect(&address).expect("a connection");
        let call = |image: &[u8], times: u64| {
            let ifunc = source.load_bytes(image).expect("an image");
            let ended = (0..times).map(|_| ifunc.call(b"12345").expect("sent").wait().is_ok());
            (ended.filter(|well| *well).count(), ifunc)
        };
        let fine = call(&image("fine", true), 300);
        let wrong = call(&image("wrong", false), 7);
        let refused = call(&image("refused", true), 5);
        assert_eq!((fine.0, wrong.0, refused.0), (300, 0, 0));

        let line = ifunc(&checkout(), &["top", &address, "--once", "--json"])
            .succeeded()
            .out;
        let sample: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let stats: Stats = serde_json::from_value(sample["stats"].clone()).expect("valid `Stats`");
        assert_eq!((stats.connected, stats.asked_by, stats.sources.len()), (2, 2, 2));
        assert_eq!(stats.pid, std::process::id());
        let counts = &stats.sources[0].counts;
        assert_eq!(
            (counts.executed, counts.failed.total(), counts.rejected.total()),
            (300, 7, 5)
        );
        assert_eq!((counts.installs, counts.refused.total()), (2, 1));
        let all: Vec<_> = stats
            .ifuncs
            .iter()
            .map(|ifunc| {
                let counts = &ifunc.counts;
                let refused = counts.refused.total();
                (
                    &*ifunc.name,
                    counts.hits,
                    counts.failed,
                    refused,
                    counts.payload_bytes,
                    ifunc.installed,
                )
            })
            .collect();
        assert_eq!(
            all,
            [
                ("fine", 300, 0, 0, 1500, true),
                ("wrong", 7, 7, 0, 35, true),
                ("refused", 0, 0, 1, 0, false)
            ]
        );
        assert_eq!(stats.ifuncs[0].counts.times.count(), 64 + (300 - 64) / 64);
        let id = blake3_of(&stats, "fine");
        assert!(
            sample["rates"]["ifuncs"][&id].as_f64().expect("a number") > 0.0,
            "{line}"
        );

        let shown = ifunc(
            &checkout(),
            &["top", &address, "--count", "2", "--interval", "0.05"],
        )
        .succeeded()
        .out;
        assert_eq!(shown.matches("Target ").count(), 2, "{shown}");
        for text in [
            "fine ",
            "(refused)",
            "rejected: 5 Policy; images refused: 1 Policy; failed: 7 Payload",
            &id[..12],
        ] {
            assert!(shown.contains(text), "`{text}` is not in\n{shown}");
        }
        assert!(!shown.contains('\x1b'), "no terminal is there");
        if address.starts_with("ucx") {
            let over = stats.sources[1].lanes.join(" ");
            assert!(
                over.contains('/') && shown.contains(&format!("seen over {over}")),
                "{shown}"
            );
        }
        serving.stop().expect("the target");
    }
}

fn blake3_of(stats: &Stats, name: &str) -> String {
    let ifunc = stats.ifuncs.iter().find(|ifunc| ifunc.name == name).expect("it");
    ifunc.id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn errors_come_with_help() {
    let top = |address: &str| ifunc(&checkout(), &["top", address, "--once"]);
    top("shm:top-test-absent").failed(
        1,
        &["error: no target listens at", "help: ", "ifunc: ready ADDRESS"],
    );
    top("loopback:x").failed(1, &["its own process only", "help: use `Target::stats`"]);
    top("pigeon").failed(1, &["names no transport", "help: "]);
    let address = unique();
    let serving = start(builder().share_stats(false), &address);
    top(&address).failed(
        1,
        &[
            "error: this target does not tell",
            "help: `Target::builder().share_stats(true)`",
        ],
    );
    serving.stop().expect("the target");
    // A target that listens but does not poll.
    let address = unique();
    let _idle = builder().listen(&address).expect("a target");
    top(&address).failed(1, &["does not answer", "help: it is stopped"]);
    for bad in ["0", "x", "-1", "1e9"] {
        ifunc(&checkout(), &["top", "shm:x", &format!("--interval={bad}")]).failed(2, &["seconds"]);
    }
}

#[test]
fn a_target_that_comes_back_is_shown_again() {
    let address = unique();
    let serving = start(builder(), &address);
    let child = command(&checkout(), &["top", &address, "--json", "--interval", "0.02"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut top = Killed(child);
    let mut lines = BufReader::new(top.0.stdout.take().expect("piped")).lines();
    let mut messages = BufReader::new(top.0.stderr.take().expect("piped")).lines();
    let mut most_images = || {
        let line = lines.next().expect("another sample").expect("a line");
        let sample: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        sample["stats"]["code"]["max_images"].as_u64().expect("a number")
    };
    let first = most_images();
    assert_eq!(most_images(), first);
    serving.stop().expect("the target");
    let line = messages.next().expect("a message").expect("a line");
    assert!(line.contains("went away; waiting up to 30 s"), "{line}");
    let _serving = start(builder().code_cache(1 << 20, 7), &address);
    let line = messages.next().expect("a message").expect("a line");
    assert!(line.contains("Back"), "{line}");
    // Samples from before the restart may still be in the pipe.
    while most_images() != 7 {}
}
