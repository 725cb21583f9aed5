//! What a target sleeps on: the doorbells of its listener and of the links that it made, and its stop.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::os::{Epoll, EventFd, EventFlags};
use crate::transport::Waiter;
use crate::travel::Travels;

/// What the sleeper of a target sleeps on.
#[derive(Debug)]
pub(crate) struct TargetDoorbell {
    epoll: Epoll,
    /// Rung by other threads of this process.
    pub(crate) local: Arc<EventFd>,
    /// The shortest of all links that the target made so far, in nanoseconds.
    poll_interval: AtomicU64,
    /// Until the target has something to do that no doorbell reports, in nanoseconds.
    look_after: AtomicU64,
    /// What a node has to do later.
    travels: std::sync::OnceLock<Arc<Travels>>,
    is_stopped: AtomicBool,
    /// Stays readable after the stop.
    stop: EventFd,
    /// The threads that serve. One may be there twice.
    threads: Mutex<Vec<ThreadId>>,
}

/// The token of [`TargetDoorbell::local`], which is to be cleared, and of everything else.
const LOCAL: u64 = 1;
const OTHER: u64 = 0;

impl TargetDoorbell {
    pub(crate) fn new(listener: BorrowedFd<'_>) -> std::io::Result<Self> {
        let epoll = Epoll::new()?;
        let (stop, local) = (EventFd::new()?, EventFd::new()?);
        for (fd, token) in [(listener, OTHER), (stop.as_fd(), OTHER), (local.as_fd(), LOCAL)] {
            epoll.add(fd, token, EventFlags::IN)?;
        }
        Ok(Self {
            epoll,
            local: Arc::new(local),
            poll_interval: AtomicU64::new(u64::MAX),
            look_after: AtomicU64::new(u64::MAX),
            travels: std::sync::OnceLock::new(),
            is_stopped: AtomicBool::new(false),
            stop,
            threads: Mutex::default(),
        })
    }

    /// The sleeper wakes when this node has something to do.
    pub(crate) fn serve_node(&self, travels: Arc<Travels>) {
        let _ = self.travels.set(travels);
    }

    /// Watches the doorbell of a link that the target made instead of that of an earlier one.
    pub(crate) fn watch(&self, watched: &mut Option<Arc<dyn Waiter>>, link: Option<Arc<dyn Waiter>>) {
        if watched.as_ref().map(Arc::as_ptr) == link.as_ref().map(Arc::as_ptr) {
            return;
        }
        if let Some(old) = watched.take() {
            self.epoll.remove(old.doorbell());
        }
        if let Some(link) = &link {
            let events = EventFlags::IN | EventFlags::RDHUP;
            if let Err(error) = self.epoll.add(link.doorbell(), OTHER, events) {
                tracing::error!(%error, "a target cannot watch a link that it made");
            }
            self.poll_within(link.poll_interval());
        }
        *watched = link;
    }

    /// The target has a link that is to be polled so often.
    pub(crate) fn poll_within(&self, interval: Option<Duration>) {
        if let Some(interval) = interval {
            let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
            self.poll_interval.fetch_min(interval, Ordering::Relaxed);
        }
    }

    /// The longest time until the next poll; `None`: the doorbells report every event.
    pub(crate) fn poll_interval(&self) -> Option<Duration> {
        let of_links = self.poll_interval.load(Ordering::Relaxed);
        let interval = of_links.min(self.look_after.load(Ordering::Relaxed));
        let interval = (interval != u64::MAX).then(|| Duration::from_nanos(interval));
        let of_node = self.travels.get().and_then(|travels| travels.time_left());
        interval.into_iter().chain(of_node).min()
    }

    /// The target looks after its connections at least so often.
    pub(crate) fn set_look_interval(&self, interval: Option<Duration>) {
        let nanoseconds = interval.map_or(u64::MAX, |interval| {
            u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)
        });
        self.look_after.store(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Sleeps until the listener's peers, another thread or the stop ring.
    pub(crate) fn sleep(&self) -> std::io::Result<()> {
        self.sleep_at_most(Duration::MAX)
    }

    /// As [`sleep`](Self::sleep), for at most this time.
    pub(crate) fn sleep_for(&self, time: Duration) -> std::io::Result<()> {
        self.sleep_at_most(time)
    }

    fn sleep_at_most(&self, time: Duration) -> std::io::Result<()> {
        let set_asleep = |is_asleep| {
            if let Some(travels) = self.travels.get() {
                travels.set_asleep(is_asleep);
            }
        };
        // Before the time is computed: what becomes due sooner after that rings.
        set_asleep(true);
        let interval = self.poll_interval().filter(|&interval| interval < time);
        let time = interval.or((time != Duration::MAX).then_some(time));
        let mut has_rung = false;
        let slept = self.epoll.wait(time, |token| has_rung |= token == LOCAL);
        set_asleep(false);
        slept?;
        if has_rung {
            self.local.clear();
        }
        Ok(())
    }

    fn threads(&self) -> MutexGuard<'_, Vec<ThreadId>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for TargetDoorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Ends [`Target::serve`](crate::Target::serve), from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle(pub(crate) Arc<TargetDoorbell>);

impl StopHandle {
    /// Makes `serve` return soon, now and in every later call.
    pub fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Release);
        self.0.stop.wake();
    }

    /// Makes the calling thread one of those that serve.
    pub(crate) fn enlist(&self) -> Enlisted<'_> {
        self.0.threads().push(thread::current().id());
        Enlisted(&self.0)
    }

    /// Whether the calling thread is one of those that serve.
    pub(crate) fn is_served_here(&self) -> bool {
        self.0.threads().contains(&thread::current().id())
    }
}

/// While it lives, the thread that made it is one of those that serve.
#[derive(Debug)]
pub(crate) struct Enlisted<'a>(&'a TargetDoorbell);

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        let here = thread::current().id();
        let mut threads = self.0.threads();
        if let Some(at) = threads.iter().position(|&thread| thread == here) {
            threads.swap_remove(at);
        }
    }
}
