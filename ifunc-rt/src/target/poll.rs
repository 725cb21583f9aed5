//! Polls, serves and sleeps on one thread.

use std::thread;
use std::time::{Duration, Instant};

use ifunc::payload::TargetArgs;

use super::argument::Argument;
use super::served::Execution;
use super::{Target, TargetError};
use crate::driver::backoff::Next;

impl Target {
    /// Polls every ready connection once and runs what has arrived, within a budget per connection: at most 64
    /// frames, fewer if they are large or bring images; of a batch of short invocations of one ifunc, at most 1024. Returns the
    /// number of frames and of invocations in batches processed. A connection that has been idle for a while costs nothing until it is
    /// ready again.
    ///
    /// Never sleeps. Where several sources stream over `shm`, it may wait up to 30 microseconds for more of their frames, as long as that makes
    /// the sources faster; to find that out, it waits up to 110 microseconds now and then.
    #[inline]
    pub fn poll<T: TargetArgs + 'static>(&mut self, target: &mut T) -> usize {
        match self.links.has_scope() {
            true => self.poll_target::<T, true>(target),
            false => self.poll_target::<T, false>(target),
        }
    }

    /// As [`poll`](Self::poll), for one kind of listener. Each is compiled by itself: in one function, the arguments of invocations would
    /// be in memory, and their reader wait for the stores.
    #[inline(never)]
    fn poll_target<T: TargetArgs + 'static, const IN_SCOPE: bool>(&mut self, target: &mut T) -> usize {
        let argument = self.argument(&raw mut *target, false);
        self.poll_argument::<IN_SCOPE>(argument)
    }

    /// As [`poll`](Self::poll), with these target arguments. Compiled for programs that use it alone.
    #[inline(always)]
    pub(super) fn poll_argument<const IN_SCOPE: bool>(&mut self, argument: Argument) -> usize {
        let Self {
            links, host, entry, ..
        } = self;
        let mut session = entry.session();
        links.poll::<IN_SCOPE>(Execution {
            host,
            session: session.reborrow(),
            argument,
        })
    }

    /// Serves until [`StopHandle::stop`](crate::StopHandle::stop) is called. An idle target sleeps and costs no CPU.
    ///
    /// # Errors
    /// The kernel's error from waiting. The type has an opaque name that exports use for another type: see
    /// [`TargetError::Names`]. A [`poll`](Self::poll) refuses images that take it instead.
    pub fn serve<T: TargetArgs + 'static>(&mut self, target: &mut T) -> Result<(), TargetError> {
        self.serve_until(target, |_| false)
    }

    /// Serves until `done` returns `true`, which the target calls after every poll that ran something, or until
    /// [`StopHandle::stop`](crate::StopHandle::stop).
    ///
    /// # Errors
    /// The kernel's error from waiting. The type has an opaque name that exports use for another type: see
    /// [`TargetError::Names`]. A [`poll`](Self::poll) refuses images that take it instead.
    pub fn serve_until<T: TargetArgs + 'static>(
        &mut self,
        target: &mut T,
        mut done: impl FnMut(&T) -> bool,
    ) -> Result<(), TargetError> {
        self.name_type::<T>()?;
        self.serve_with(|this| match this.poll(target) {
            0 => Polled::Nothing,
            _ if done(target) => Polled::Done,
            _ => Polled::Ran,
        })
    }

    /// Serves until a poll says that it is done, or until [`StopHandle::stop`](crate::StopHandle::stop).
    pub(super) fn serve_with(
        &mut self,
        mut poll: impl FnMut(&mut Self) -> Polled,
    ) -> Result<(), TargetError> {
        self.move_in()?;
        let mut backoff = self.links.backoff(&self.host);
        while !self.host.doorbell.is_stopped() {
            match poll(self) {
                Polled::Nothing => {}
                Polled::Ran => {
                    backoff.reset();
                    if !self.links.passes() {
                        continue;
                    }
                }
                Polled::Done => break,
            }
            if backoff.next() == Next::Poll {
                continue;
            }
            if self.arm() {
                failpoint!("target.sleep");
                let slept = self.host.doorbell.sleep();
                slept.map_err(TargetError::os("wait for sources"))?;
            }
            self.disarm();
            backoff.reset();
        }
        Ok(())
    }

    /// Maps a new stack for injected code if another thread made the target. The kernel maps downwards, so the stack
    /// lies below the thread's own: debuggers follow a backtrace upwards only.
    pub(super) fn move_in(&mut self) -> Result<(), TargetError> {
        let here = thread::current().id();
        if self.home != here {
            let thread = self.host.thread();
            self.entry = thread.map_err(TargetError::os("map a stack for injected code"))?;
            self.home = here;
        }
        Ok(())
    }

    /// For event loops: arms the descriptor before the caller waits for [`as_fd`](std::os::fd::AsFd::as_fd) to become readable.
    /// `false`: there is something to do already; poll instead of waiting.
    ///
    /// The loop is: `poll` until it returns 0; `arm`; if that returns `true`, wait, at most for
    /// [`poll_interval`](Self::poll_interval); `disarm`; repeat.
    pub fn arm(&mut self) -> bool {
        // This thread polls from here on: the target may have been made on another one.
        self.entry.session().prepare_thread();
        self.links.arm(&self.host, true) && !self.host.doorbell.is_stopped()
    }

    /// Undoes [`arm`](Self::arm).
    pub fn disarm(&mut self) {
        self.links.disarm();
    }

    /// Sleeps until there may be something to [`poll`](Self::poll) for, at most `timeout`: [`arm`](Self::arm), the descriptor and
    /// [`disarm`](Self::disarm) in one, for a thread that polls by hand. `false`: the time has passed. After
    /// [`StopHandle::stop`](crate::StopHandle::stop) it returns `true` at once.
    ///
    /// ```no_run
    /// # fn other_work() {}
    /// let mut counter = 0u64;
    /// // SAFETY: only processes of this user connect, and they may do here whatever they like.
    /// let mut target = unsafe { ifunc_rt::Target::builder().accept_code() }.listen("shm:counter")?;
    /// loop {
    ///     while target.poll(&mut counter) > 0 {}
    ///     if !target.wait(std::time::Duration::from_millis(10))? {
    ///         other_work();
    ///     }
    /// }
    /// # Ok::<(), ifunc_rt::TargetError>(())
    /// ```
    ///
    /// # Errors
    /// The kernel's error from waiting.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, TargetError> {
        let is_armed = self.arm();
        let started = Instant::now();
        let slept = match is_armed {
            true => self.host.doorbell.sleep_for(timeout),
            false => Ok(()),
        };
        self.disarm();
        slept.map_err(TargetError::os("wait for sources"))?;
        Ok(!is_armed || started.elapsed() < timeout)
    }
}

/// What a poll of a target that serves came to.
pub(super) enum Polled {
    /// There was nothing.
    Nothing,
    /// It processed frames.
    Ran,
    /// It processed frames, and the target has served enough.
    Done,
}
