//! Several threads that serve one target, for ifuncs that take its data as `&T`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use ifunc::payload::TargetArgs;
use ifunc_exec::ExecThread;

use super::argument::Argument;
use super::connection::{Connection, ConnectionEnded};
use super::served::Execution;
use super::{Host, Links, Serving, Target, TargetError};
use crate::driver::backoff::Backoff;
use crate::serve::doorbell::StopHandle;
use crate::serve::pool::{Pool, Ran, Taken, Work};

/// State that the threads share.
struct Connections<'a> {
    host: &'a Host,
    links: &'a mut Links,
}

/// Target arguments of the invocations of all threads.
struct Common(Argument);

// SAFETY: the pointer is to target arguments that several threads may use for longer than the pool lives: the promise of
// `serve_on`.
unsafe impl Sync for Common {}

/// Why the threads ended without a request to stop.
enum End {
    Failed(TargetError),
    Panicked(Box<dyn Any + Send>),
}

impl End {
    fn os(what: &'static str, error: std::io::Error) -> Self {
        Self::Failed(TargetError::Os { what, error })
    }
}

impl Work for Connections<'_> {
    type Item = Box<Connection>;
    type End = End;

    fn take(&mut self) -> Taken<Box<Connection>> {
        self.links.gather(self.host);
        let Some(mut connection) = self.links.take_next(self.host) else {
            return Taken::None;
        };
        if connection.has_work(self.host) {
            return Taken::Item(connection);
        }
        self.links.put_back(connection);
        Taken::Idle
    }

    fn put_back(&mut self, connection: Box<Connection>) {
        self.links.put_back(connection);
    }

    fn arm(&mut self, all: bool) -> bool {
        self.links.arm(self.host, all)
    }

    fn disarm(&mut self) {
        self.links.disarm();
    }

    fn is_idle(&self) -> bool {
        self.links.is_idle()
    }

    fn is_stopped(&self) -> bool {
        self.host.doorbell.is_stopped()
    }

    fn backoff(&self) -> Backoff {
        self.links.backoff(self.host)
    }

    fn doorbell(&self) -> Waker {
        Arc::clone(&self.host.doorbell.local).into()
    }
}

impl Target {
    /// Serves on `threads` threads, the calling one included, until [`StopHandle::stop`](super::StopHandle::stop) is
    /// called. Invocations of different connections run in parallel; those of one connection run in their order, one
    /// at a time.
    ///
    /// Only images that are *shareable* run: ifuncs that take `&T` of a type that is `Sync`. The target rejects
    /// ifuncs that take `&mut T` at their installation, with the reason. All threads share a `static` of such an
    /// ifunc, as in any program with threads, so it is `Sync` or rests on its author's `unsafe` promise. In C,
    /// `IFUNC_SHAREABLE(name)` makes the promise for the whole ifunc, its statics included.
    ///
    /// An idle target sleeps and costs no CPU. While there is work, one thread more than the work needs polls for
    /// more.
    ///
    /// # Errors
    /// The kernel refuses a thread, its stack, or a wait. [`TargetError::OneThread`], if there are several threads
    /// and the target uses an application's worker that only one thread may use.
    pub fn serve_shared<T: TargetArgs + Sync + 'static>(
        &mut self,
        target: &T,
        threads: usize,
    ) -> Result<(), TargetError> {
        self.name_type::<T>()?;
        let argument = self.argument((&raw const *target).cast_mut(), true);
        // SAFETY: they are `Sync`, and borrowed until this returns.
        unsafe { self.serve_on(argument, threads) }
    }

    /// Serves these target arguments on several threads.
    ///
    /// # Safety
    /// Several threads may use them at the same time, until this returns.
    pub(super) unsafe fn serve_on(&mut self, argument: Argument, threads: usize) -> Result<(), TargetError> {
        if threads > 1 && !self.links.listener.serves_any_thread() {
            return Err(TargetError::OneThread);
        }
        self.move_in()?;
        let argument = Common(argument);
        let Self {
            links, host, entry, ..
        } = self;
        let host = &*host;
        let pool = Pool::new(Connections { host, links });
        let serve = |entry: &mut ExecThread| serve(&pool, host, &argument, entry);
        thread::scope(|scope| {
            for _ in 1..threads {
                let name = thread::Builder::new().name("ifunc-serve".into());
                // Its stack for injected code lies below its own: see `move_in`.
                let started = name.spawn_scoped(scope, || match host.thread() {
                    Ok(mut entry) => serve(&mut entry),
                    Err(error) => pool.end(End::os("map a stack for injected code", error)),
                });
                if let Err(error) = started {
                    pool.end(End::os("start a thread that serves", error));
                }
            }
            serve(entry);
        });
        let (mut connections, end) = pool.into_inner();
        connections.disarm();
        match end {
            None => Ok(()),
            Some(End::Failed(error)) => Err(error),
            Some(End::Panicked(panic)) => resume_unwind(panic),
        }
    }

    /// Runs [`serve_shared`](Self::serve_shared) on threads of its own. They share `value` with its other holders
    /// until they are stopped.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let counter = Arc::new(AtomicU64::new(0));
    /// // SAFETY: only processes of this user connect, and they may do here whatever they like.
    /// let builder = unsafe { ifunc_rt::Target::builder().accept_code() };
    /// let serving = builder.listen("shm:counter")?.spawn_shared(counter.clone(), 4)?;
    /// // … sources come and go …
    /// println!("{} so far", counter.load(Ordering::Relaxed));
    /// serving.stop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_shared<T: TargetArgs + Send + Sync + 'static>(
        self,
        value: Arc<T>,
        threads: usize,
    ) -> Result<Serving<Arc<T>>, TargetError> {
        self.name_type::<T>()?;
        self.spawn_with(value, move |target, value| target.serve_shared(&**value, threads))
    }
}

/// Body of each thread. A panic ends the pool for all threads; otherwise they would wait for this one.
fn serve(pool: &Pool<Connections<'_>>, host: &Host, argument: &Common, entry: &mut ExecThread) {
    let doorbell = &host.doorbell;
    let stop = StopHandle(Arc::clone(doorbell));
    let _here = stop.enlist();
    let mut session = entry.session();
    let mut execution = Execution {
        host,
        session: session.reborrow(),
        argument: argument.0,
    };
    let sleep = || {
        doorbell
            .sleep()
            .map_err(|error| End::os("wait for sources", error))
    };
    let run = |mut connection: Box<Connection>| {
        let number = connection.source().connection;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if host.travels.has_mail() {
                connection.deliver(host);
            }
            connection.poll(execution.reborrow())
        }));
        match polled {
            Ok(Ok(0)) => return Ran::Blocked(connection),
            Ok(Ok(_)) => return Ran::Done(connection),
            Ok(Err(ConnectionEnded)) => host.forget(number),
            Err(panic) => {
                drop(connection);
                pool.end(End::Panicked(panic));
            }
        }
        Ran::Over
    };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| pool.work(run, sleep))) {
        pool.end(End::Panicked(panic));
    }
}
