//! Targets that run on a thread of the test.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use crate::{
    ImageInfo, Policy, Quotas, Source, SourceInfo, SourceOptions, StopHandle, Target, TargetBuilder,
};

/// Transports between processes on this machine. Without UCX there is one fewer, which `IFUNC_REQUIRE_UCX` forbids.
pub(super) fn between_processes() -> Vec<&'static str> {
    let mut all = vec!["shm"];
    if cfg!(feature = "tls") {
        all.push("tls");
    }
    #[cfg(feature = "ucx")]
    match ::ucx::Library::load() {
        Ok(_) => all.push("ucx"),
        Err(error) => {
            let required = std::env::var_os("IFUNC_REQUIRE_UCX").is_some();
            assert!(!required, "UCX is required here: {error}");
            eprintln!("not tested over UCX: {error}");
        }
    }
    all
}

/// An address to listen at; the target reports the one that it chose.
pub(super) fn place(transport: &str) -> String {
    match transport {
        "tls" => "tls://127.0.0.1:0".into(),
        "ucx" => "ucx://127.0.0.1:0".into(),
        "ucx-put" => "ucx-put://127.0.0.1:0".into(),
        other => unique(other),
    }
}

pub(super) fn unique(transport: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{transport}:rt-test-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A target whose check of the first image panics after the barrier was reached: the test reaches it when the call was sent, too.
/// A target that panics earlier is gone before, and then the call was not sent.
pub(super) fn panicking() -> (Arc<Barrier>, TargetBuilder) {
    let sent = Arc::new(Barrier::new(2));
    let barrier = Arc::clone(&sent);
    let check = move |_: &SourceInfo, image: &ImageInfo<'_>| -> bool {
        barrier.wait();
        panic!("what is {}?", image.name)
    };
    (sent, accepting().map_policy(|policy| policy.accept_if(check)))
}

pub(super) struct Running {
    address: String,
    stop: StopHandle,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Running {
    pub(super) fn start(address: &str, builder: TargetBuilder) -> Self {
        let mut target = builder.listen(address).unwrap();
        let (address, stop) = (target.address(), target.stop_handle());
        let thread = thread::spawn(move || {
            let mut counter = 0u64;
            target.serve(&mut counter).unwrap();
            counter
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn finish(mut self) -> u64 {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

pub(super) fn accepting() -> TargetBuilder {
    // SAFETY: the images of these tests.
    Target::builder().policy(unsafe { Policy::trust_every_peer() })
}

/// With other quotas of each connection.
pub(super) fn with_quotas(builder: TargetBuilder, change: impl FnOnce(Quotas) -> Quotas) -> TargetBuilder {
    builder.map_policy(|policy| policy.quotas(change(Quotas::default())))
}

/// Has credit for several calls before its first poll, for any defaults in the environment.
pub(super) fn roomy() -> TargetBuilder {
    accepting().credits(4096)
}

pub(super) fn source(address: &str) -> Source {
    let patience = Duration::from_secs(20);
    let options = SourceOptions::default()
        .timeout(patience)
        .connect_timeout(patience);
    Source::connect_with(address, options).unwrap()
}

/// Every transport, with the usual rings and with the smallest, in order and shuffled.
pub(super) fn everywhere(test: impl Fn(&str, &dyn Fn() -> TargetBuilder)) {
    let smallest = || accepting().credits(2).ring(1 << 16);
    test(&unique("loopback"), &accepting);
    test(&unique("loopback"), &smallest);
    for seed in 1..4 {
        test(&unique("loopback"), &|| accepting().shuffle(seed));
        test(&unique("loopback"), &|| {
            accepting().shuffle(seed).credits(16).ring(1 << 16)
        });
    }
    test(&unique("shm"), &accepting);
    test(&unique("shm"), &smallest);
}
