//! Two nodes that flood each other, with the smallest window that there can be.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ifunc_rt::{Source, SourceOptions};
use ifunc_tests_ifuncs::travel::{LONGEST, Tour, t_tour};

use super::{accepting, start, stop, sum};

/// Calls that each source has under way.
const AT_ONCE: usize = 100;
/// Bytes of each node's outbox.
const OUTBOX: usize = 64 << 10;
/// Bytes by which the memory of the process may grow after the first tenth of the messages. The smallest thing that each message
/// of a long flood could leave behind, 20 bytes, would be as much.
const GROWTH: u64 = 16 << 20;

/// Sources at two nodes send so many messages in total: their calls go from one node to the other and back. Every call ends.
/// Returns how many messages there were, and by how much memory grew after the first tenth.
fn flood(messages: u64) -> (u64, u64) {
    let nodes = start(2, || accepting().credits(2).ring(1 << 16).outbox(OUTBOX));
    let there_and_back: Vec<u32> = (0..LONGEST as u32).map(|n| (n + 1) % 2).collect();
    let back_and_there: Vec<u32> = (0..LONGEST as u32).map(|n| n % 2).collect();
    let warm = AtomicU64::new(0);
    let of_each = messages / 2;
    thread::scope(|scope| {
        for (first, route) in [(0, &there_and_back), (1, &back_and_there)] {
            let (address, warm) = (&nodes[first as usize].address, &warm);
            scope.spawn(move || {
                let options = SourceOptions::default().timeout(Duration::from_secs(600));
                let source = Source::connect_with(address, options).unwrap();
                let tour = source.register::<t_tour>().unwrap();
                let mut own = 0;
                while own < of_each {
                    let calls: Vec<_> = (0..AT_ONCE)
                        .map(|_| tour.call(&Tour::new(route)).unwrap())
                        .collect();
                    for call in calls {
                        match call.wait() {
                            Ok(answer) => {
                                assert_eq!(answer, sum(first, route));
                                own += LONGEST as u64 + 1;
                            }
                            // The outbox is small.
                            Err(error) => assert!(error.to_string().contains("outbox"), "{error}"),
                        }
                    }
                    if own >= of_each / 10 {
                        let _ = warm.compare_exchange(0, memory(), Ordering::Relaxed, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let grown = memory().saturating_sub(warm.load(Ordering::Relaxed));
    let ran: u64 = stop(nodes).iter().sum();
    assert!(ran >= messages, "{ran}");
    (ran, grown)
}

/// Bytes of private memory of this process.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

#[test]
fn two_nodes_flood_each_other_with_the_smallest_window() {
    flood(10_000);
}

/// Messages of [`floods_alone`].
const MESSAGES: &str = "E2E_FLOOD";

/// In a process of its own, whose memory no other test uses.
///
/// A million messages, because the tests of both tiers are not optimised: on two cores that compute something else, too, these
/// take ten minutes, and a program is killed after twenty. Ten million, optimised, take nine minutes:
///
/// ```sh
/// E2E_FLOOD=10000000 cargo test --release -p ifunc-tests --test groups -- flood::floods_alone --exact --include-ignored
/// ```
#[test]
#[ignore = "nightly: a million messages"]
fn two_nodes_flood_each_other_for_long() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "flood::floods_alone",
            "--exact",
            "--include-ignored",
            "--nocapture",
        ])
        .env(MESSAGES, "1000000")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success());
    // A program whose filter matches no test succeeds, too.
    assert!(said.contains("test result: ok. 1 passed"), "{said}");
}

#[test]
#[ignore = "role: the process of `two_nodes_flood_each_other_for_long`"]
fn floods_alone() {
    let Ok(messages) = std::env::var(MESSAGES) else {
        return;
    };
    let messages = messages.parse().unwrap();
    let (ran, grown) = flood(messages);
    println!("{ran} messages; memory grew by {grown} bytes after the first tenth");
    assert!(grown <= GROWTH, "memory grew by {grown} bytes");
}
