//! A source that clears the ready bitmap, which it shares with other sources of the target.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::unauthenticated::knock;
use super::{name, shm, soon};
use crate::os::wait_readable;
use crate::tests::images::{self, Add};
use crate::transport::ConnectConfig;
use crate::transport::shm::barrier::Barriers;
use crate::transport::shm::handshake::{Request, receive_answer};
use crate::transport::shm::ready::ReadyBitmap;
use crate::{Policy, Source, SourceOptions, Target};

/// Clears all bits and denies that the target sleeps, until it is dropped.
struct Hostile {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Hostile {
    fn start(name: &str) -> Self {
        let socket = knock(name);
        let request = Request {
            hello: ConnectConfig::default().hello,
            barriers: Barriers::register(),
        };
        request.send(socket.as_fd());
        assert!(wait_readable(socket.as_fd(), soon()));
        let (_, [_, bitmap]) = receive_answer(socket.as_fd(), name, 1 << 30).unwrap().unwrap();
        let bitmap = ReadyBitmap::adopt(bitmap.unwrap().as_fd()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (is_stopped, (clears, cleared)) = (Arc::clone(&stop), mpsc::channel());
        let thread = thread::spawn(move || {
            let _socket = socket;
            while !is_stopped.load(Ordering::Relaxed) {
                bitmap.asleep().store(0, Ordering::Relaxed);
                for word in &bitmap.words()[..16] {
                    word.store(0, Ordering::Relaxed);
                }
                let _ = clears.send(());
                thread::yield_now();
            }
        });
        cleared.recv().unwrap();
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Lets the target park everything and sleep.
fn idle() {
    thread::sleep(Duration::from_millis(50));
}

#[test]
fn a_source_that_clears_the_ready_bitmap_keeps_no_other_one_waiting() {
    let name = name("hostile-bitmap");
    let address = shm(&name).to_string();
    // SAFETY: the images are those of these tests.
    let target = Target::builder()
        .policy(unsafe { Policy::trust_every_peer() })
        .listen(&address)
        .unwrap();
    let stats = target.stats_handle();
    let serving = target.spawn(0u64).unwrap();
    let options = SourceOptions::default().timeout(Duration::from_secs(20));
    let honest = Source::connect_with(&address, options).unwrap();
    let add = honest
        .register_bytes::<Add>(&images::add().encode().unwrap())
        .unwrap();
    assert_eq!(add.call(&1).unwrap().wait().unwrap(), 1);
    let hostile = Hostile::start(&name);
    let mut took = Vec::new();
    for sum in 2..=12 {
        idle();
        let begin = Instant::now();
        assert_eq!(add.call(&1).unwrap().wait().unwrap(), sum);
        took.push(begin.elapsed());
    }
    // The source rings before it sleeps, which is soon. A busy machine delays some of the calls.
    took.sort();
    assert!(took[took.len() / 2] < Duration::from_millis(800), "{took:?}");
    // One that only sends waits for nothing, and rings for nothing.
    idle();
    add.send(&30).unwrap();
    let until = soon();
    while stats.read().total.executed < 13 {
        assert!(
            Instant::now() < until,
            "the target does not look at the idle connection"
        );
        thread::sleep(Duration::from_millis(20));
    }
    drop(hostile);
    assert_eq!(serving.stop().unwrap(), 42);
}
