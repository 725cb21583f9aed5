//! ifunc inside an application's own UCX: two processes that are source and target at once, with messages of their own on
//! the same worker.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::common::{TIMEOUT, library};

/// Whether there is a UCX to test with; `IFUNC_REQUIRE_UCX` says that there must be.
fn has_ucx() -> bool {
    let found = ucx::Library::load();
    if let Err(error) = &found {
        let required = std::env::var_os("IFUNC_REQUIRE_UCX").is_some();
        assert!(!required, "UCX is required here: {error}");
        eprintln!("not tested: {error}");
    }
    found.is_ok()
}

/// A process whose standard input is written. Killed when it is dropped.
struct Rank {
    child: Child,
    lines: Receiver<String>,
}

impl Rank {
    fn start(rounds: u64, words: &[&str], tls: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_own-worker"));
        command.arg(library("t_add")).arg(rounds.to_string()).args(words);
        command.envs(tls.map(|tls| ("UCX_TLS", tls)));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Self { child, lines }
    }

    /// What follows this word on the next line.
    fn said(&self, word: &str) -> String {
        let line = self
            .lines
            .recv_timeout(TIMEOUT)
            .unwrap_or_else(|_| panic!("it did not say `{word}`"));
        let rest = line
            .strip_prefix(word)
            .unwrap_or_else(|| panic!("`{line}`, not `{word}`"));
        rest.trim().to_owned()
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn frames_and_the_application_s_messages_share_a_worker() {
    if !has_ucx() {
        return;
    }
    const ROUNDS: u64 = 100;
    for (words, tls) in [
        (&["ifunc", "wakeup"][..], None),
        (&["application"], None),
        (&["ifunc"], Some("tcp,self")),
        (&["application", "wakeup"], Some("sm,self")),
    ] {
        let mut ranks = [(); 2].map(|()| Rank::start(ROUNDS, words, tls));
        let addresses = [0, 1].map(|n| ranks[n].said("address"));
        for (n, rank) in ranks.iter_mut().enumerate() {
            rank.tell(&addresses[1 - n]);
        }
        for rank in &mut ranks {
            let over = rank.said("over");
            assert!(over.contains('/'), "{over}");
            if let Some(tls) = tls {
                assert_eq!(over.contains("tcp"), tls.contains("tcp"), "{over}");
            }
            let last = ROUNDS * (ROUNDS + 1) / 2;
            assert_eq!(
                rank.said(""),
                format!("tags {ROUNDS} messages {ROUNDS} answered {ROUNDS} executed {ROUNDS} last {last}")
            );
            rank.said("closed");
            assert!(rank.child.wait().unwrap().success());
        }
    }
}
