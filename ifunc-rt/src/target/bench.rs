//! For tests: a target without a listener, which polls given frames.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ifunc_abi::frame::Limits;
use ifunc_exec::{
    ContainOptions, DebugInfo, ExecThread, Executor, HostSymbols, ImageExecutor, ImageExecutorOptions,
};
use ifunc_proto::Closed;
use rustix::event::{EventfdFlags, eventfd};

use super::answers::LongAnswers;
use super::argument::hash_of;
use super::one_way::OneWay;
use super::served::Execution;
use super::unfinished::Unfinished;
use super::{Argument, Host};
use crate::observe::{Metrics, StatsHandle};
use crate::policy::{LivePolicy, SharedConnect};
use crate::policy::{Policy, Quotas};
use crate::serve::SPIN;
use crate::serve::doorbell::TargetDoorbell;
use crate::transport::{ConnectConfig, Ends, Key, Link, Peer, Rx, Tx, Waiter};

/// A target of type `u64` that accepts everything.
pub(crate) struct Bench {
    host: Host,
    thread: ExecThread,
}

/// A connection that is polled by hand.
pub(crate) struct Looked {
    connection: OneWay,
    /// Target arguments of its invocations.
    pub(crate) value: u64,
}

impl Looked {
    /// Whether a poll would find something.
    pub(crate) fn has_work(&mut self) -> bool {
        self.connection.has_work()
    }

    /// Whether there is nothing to do until something arrives.
    pub(crate) fn is_quiet(&mut self, bench: &Bench) -> bool {
        self.connection.is_quiet(&bench.host)
    }
}

struct NeverWaits(OwnedFd);

impl Waiter for NeverWaits {
    fn doorbell(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn clear_doorbell(&self) {}

    fn close(&self) {}

    fn carried_by(&self) -> String {
        String::new()
    }

    fn is_peer_closed(&self) -> bool {
        false
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_unfinished(1 << 30, Duration::MAX)
    }

    /// With bounds of the bodies in fragments.
    pub(crate) fn with_unfinished(max_bytes: usize, max_age: Duration) -> Self {
        let limits = Limits {
            max_payload: 1 << 12,
            max_image: 1 << 20,
            max_answer: 1 << 10,
        };
        // Not timed: a run of entries is then run in one call.
        let quiet = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let doorbell = TargetDoorbell::new(quiet.as_fd()).unwrap();
        let travels = crate::travel::Travels::new(
            &crate::hello::serving(limits),
            1 << 20,
            std::sync::Arc::clone(&doorbell.local),
        );
        let metrics = Metrics::new(
            "loopback:bench".into(),
            ifunc_abi::stats::Timing::Off,
            1 << 20,
            64,
            std::sync::Arc::clone(&travels),
        );
        let options = ImageExecutorOptions {
            code_bytes: 1 << 20,
            max_images: 64,
            // The largest page of AArch64 is 64 KiB.
            max_image_memory: if cfg!(target_arch = "aarch64") {
                1 << 18
            } else {
                1 << 16
            },
            stack_bytes: 1 << 20,
            debug: DebugInfo::none(),
            library_folders: Vec::new,
            contain: ContainOptions::default(),
            answers: None,
            runners: None,
        };
        let unfinished = Unfinished::new(max_bytes, max_age);
        let answers = LongAnswers::new(limits.max_answer, &unfinished);
        // SAFETY: the images are those of the tests.
        let policy = unsafe { Policy::trust_every_peer() }.quotas(Quotas::UNLIMITED);
        let policy = LivePolicy::new(policy, SharedConnect::default()).unwrap();
        let executor = ImageExecutor::new(options, HostSymbols::new().unwrap(), metrics.clone()).unwrap();
        Self {
            thread: executor.thread().unwrap(),
            host: Host {
                policy: std::sync::Arc::new(policy),
                knows: crate::transport::address::Knows::default(),
                executor,
                uses_runners: false,
                metrics,
                hello: crate::hello::serving(limits),
                max_handles: 64,
                copy_payloads: false,
                share_stats: None,
                peers: super::Peers::default(),
                membership: None,
                travels,
                companions: crate::travel::companions::CompanionMemory::new(1 << 20),
                unfinished,
                answers,
                doorbell: std::sync::Arc::new(doorbell),
                spin: SPIN,
                on_escape: None,
            },
        }
    }

    /// The target's counters.
    pub(crate) fn stats(&self) -> ifunc_abi::stats::Stats {
        StatsHandle(self.host.metrics.clone()).read()
    }

    /// Polls every frame of `rx`; an error is the reason why the connection was closed before the last.
    pub(crate) fn look(&mut self, tx: impl Tx + 'static, rx: impl Rx + 'static) -> Result<(), String> {
        let mut looked = self.connect(tx, rx, rustix::process::geteuid().as_raw());
        while self.turn(&mut looked)? > 0 {}
        Ok(())
    }

    /// A link to a peer whose user is `uid`.
    pub(crate) fn link(tx: impl Tx + 'static, rx: impl Rx + 'static, uid: u32) -> Link {
        Link {
            ends: Ends::other(tx, rx),
            waiter: std::sync::Arc::new(NeverWaits(eventfd(0, EventfdFlags::CLOEXEC).unwrap())),
            peer: Peer {
                uid: Some(uid),
                pid: None,
                key: None,
                certified: None,
            },
            shares_bodies: true,
            hello: ConnectConfig::default().hello,
            key: Some(Key::of(0)),
        }
    }

    /// Whether payloads that come over a link are copied.
    pub(crate) fn copies_payloads(&self, link: Link) -> bool {
        OneWay::new(1, link, &self.host).state.copies_payloads
    }

    /// A connection of a source whose user is `uid`.
    pub(crate) fn connect(&mut self, tx: impl Tx + 'static, rx: impl Rx + 'static, uid: u32) -> Looked {
        let link = Self::link(tx, rx, uid);
        Looked {
            connection: OneWay::new(1, link, &self.host),
            value: 0,
        }
    }

    /// Polls it once: returns the number of processed frames, or why the connection ended.
    pub(crate) fn turn(&mut self, looked: &mut Looked) -> Result<usize, String> {
        let mut session = self.thread.session();
        let execution = Execution {
            host: &self.host,
            session: session.reborrow(),
            argument: Argument::new(&raw mut looked.value, hash_of::<u64>(), false),
        };
        let polled = looked.connection.poll(execution);
        polled.map_err(|end| match *end {
            Closed::Left => "left".into(),
            Closed::Broke(why) => why,
        })
    }
}
