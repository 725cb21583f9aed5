//! Several threads that serve one target, for ifuncs that take its data by `&T`.
//!
//! A connection is one thread's while it is looked at, and goes from hand to hand through one queue, so its frames keep their
//! order. Which threads are awake follows from one rule: *whatever may come next, somebody will see it*. A thread that finds
//! work is gone for as long as the work takes; if it was the last that looked around, it wakes another first, unless all
//! other connections rest and somebody sleeps on the listener's bell for them. One thread at most sleeps there; the others
//! wait to be woken.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use ifunc::payload::TargetArgs;

use super::bells::Bells;
use super::connection::Argument;
use super::roster::Roster;
use super::{Host, SPIN, Serving, Target, TargetError};
use crate::transport::Listener;
use ifunc_exec::{ExecThread, Executor};

/// What a thread that looks around does between two looks while others may want the lock: about a microsecond.
const PAUSES: usize = 32;

struct Crew<'a> {
    host: &'a Host,
    bells: &'a Bells,
    argument: Common,
    state: Mutex<State<'a>>,
    /// Rung for those that wait.
    summons: Condvar,
}

/// What the invocations of all threads run on.
struct Common(Argument);

// SAFETY: the pointer is to target arguments that are `Sync` and borrowed for longer than the crew lives (`serve_shared`).
unsafe impl Sync for Common {}

struct State<'a> {
    roster: &'a mut Roster,
    listener: &'a mut dyn Listener,
    /// Threads that are awake and not away with a connection.
    looking: usize,
    /// Threads that wait for a summons.
    waiting: usize,
    /// Summons that nobody has followed yet.
    summoned: usize,
    /// A thread sleeps on the listener's bell.
    asleep: bool,
    /// Why it is over before it was stopped.
    over: Option<Over>,
}

enum Over {
    Failed(TargetError),
    Panicked(Box<dyn Any + Send>),
}

impl Target {
    /// Serves on `threads` threads, of which the calling one is the first, until [`StopHandle::stop`](super::StopHandle::stop)
    /// is called. Invocations of different connections run at the same time, those of one connection in their order, one at
    /// a time.
    ///
    /// Only images that are *shareable* run: ifuncs that take `&T` of a type that is `Sync`. Those that take `&mut T` are
    /// refused when they are installed, and told why. A `static` of such an ifunc is what it is in any program with threads:
    /// there is one for all of them, so it is `Sync` or its author's `unsafe` promise. In C, `IFUNC_SHAREABLE(name)` makes the
    /// promise for the whole ifunc, its statics included.
    ///
    /// An idle target sleeps and costs no CPU. While there is work, one thread more than there is work for looks around.
    ///
    /// # Errors
    /// The kernel's: no thread, no stack for it, no waiting. [`TargetError::OneThread`], if there are several and the target is on
    /// a worker of an application's that only one may use.
    pub fn serve_shared<T: TargetArgs + Sync + 'static>(
        &mut self,
        target: &T,
        threads: usize,
    ) -> Result<(), TargetError> {
        if threads > 1 && !self.listener.serves_any_thread() {
            return Err(TargetError::OneThread);
        }
        let argument = Argument {
            target_type: self.target_type::<T>(),
            target: (&raw const *target).cast_mut().cast(),
            shared: true,
        };
        self.move_in()?;
        let Self {
            roster,
            host,
            entry,
            listener,
            bells,
            ..
        } = self;
        let crew = Crew {
            host,
            bells,
            argument: Common(argument),
            state: Mutex::new(State {
                roster,
                listener: &mut **listener,
                looking: 0,
                waiting: 0,
                summoned: 0,
                asleep: false,
                over: None,
            }),
            summons: Condvar::new(),
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                let crew = &crew;
                let name = thread::Builder::new().name("ifunc-serve".into());
                // Its stack for injected code below its own: see `move_in`.
                let started = name.spawn_scoped(scope, move || match crew.host.executor.thread() {
                    Ok(mut entry) => crew.work_or_end(&mut entry),
                    Err(error) => {
                        let what = "map a stack for injected code";
                        crew.end(Over::Failed(TargetError::Os { what, error }));
                    }
                });
                if let Err(error) = started {
                    let what = "start a thread that serves";
                    crew.end(Over::Failed(TargetError::Os { what, error }));
                }
            }
            crew.work_or_end(entry);
        });
        let state = crew.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.listener.disarm();
        match state.over {
            None => Ok(()),
            Some(Over::Failed(error)) => Err(error),
            Some(Over::Panicked(panic)) => resume_unwind(panic),
        }
    }

    /// [`serve_shared`](Self::serve_shared) on threads of its own, which share `value` with whoever holds it until they are
    /// stopped.
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
        self.spawn_with(value, move |target, value| target.serve_shared(&**value, threads))
    }
}

impl<'a> Crew<'a> {
    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it for all.
    fn end(&self, why: Over) {
        self.lock().over.get_or_insert(why);
        self.bells.kick();
        self.summons.notify_all();
    }

    fn is_over(&self, state: &State<'_>) -> bool {
        state.over.is_some() || self.bells.stopped()
    }

    /// [`work`](Self::work); a panic ends it for all, who would wait for this thread otherwise.
    fn work_or_end(&self, entry: &mut ExecThread) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(entry))) {
            self.end(Over::Panicked(panic));
        }
    }

    /// What each thread does.
    fn work(&self, entry: &mut ExecThread) {
        let _here = self.bells.enlist();
        let mut session = self.host.executor.session(entry);
        let mut state = self.lock();
        state.looking += 1;
        let mut looks = 0u32;
        let mut idle_since: Option<Instant> = None;
        while !self.is_over(&state) {
            let State { roster, listener, .. } = &mut *state;
            roster.gather(&mut **listener, self.host);
            let Some(mut connection) = roster.take_next(&mut **listener) else {
                drop(state);
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
                state = self.look_around(&mut looks, &mut idle_since);
                continue;
            };
            if !connection.has_work() {
                roster.put_back(connection);
                drop(state);
                state = self.look_around(&mut looks, &mut idle_since);
                continue;
            }
            self.leave_watch(&mut state);
            drop(state);
            let polled = catch_unwind(AssertUnwindSafe(|| {
                connection.poll(self.host, &mut session, self.argument.0)
            }));
            match polled {
                Ok(Ok(done)) => {
                    state = self.lock();
                    state.roster.put_back(connection);
                    if done == 0 {
                        // What is there waits for room.
                        state.looking += 1;
                        drop(state);
                        state = self.look_around(&mut looks, &mut idle_since);
                        continue;
                    }
                }
                Ok(Err(end)) => {
                    connection.ended(&end);
                    drop(connection);
                    state = self.lock();
                }
                Err(panic) => {
                    drop(connection);
                    self.end(Over::Panicked(panic));
                    state = self.lock();
                }
            }
            state.looking += 1;
            (looks, idle_since) = (0, None);
        }
        state.looking -= 1;
        drop(state);
        // Whoever sleeps or waits learns it from who is the first to.
        self.bells.kick();
        self.summons.notify_all();
    }

    /// A look in vain. After many, the thread sleeps or waits.
    fn look_around(&self, looks: &mut u32, idle_since: &mut Option<Instant>) -> MutexGuard<'_, State<'a>> {
        let state = self.lock();
        *looks += 1;
        if *looks < state.listener.pace() {
            return state;
        }
        *looks = 0;
        if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN {
            return state;
        }
        *idle_since = None;
        self.rest(state)
    }

    /// This thread is about to be away: somebody else must see what comes.
    fn leave_watch(&self, state: &mut State<'_>) {
        state.looking -= 1;
        if state.looking > 0 || state.asleep && state.roster.all_rest() {
            return;
        }
        if state.waiting > state.summoned {
            state.summoned += 1;
            self.summons.notify_one();
        } else if state.asleep {
            self.bells.kick();
        }
    }

    /// Sleeps on the bell, or waits if somebody does already. The last to do so puts all connections to rest.
    fn rest<'b>(&'b self, mut state: MutexGuard<'b, State<'a>>) -> MutexGuard<'b, State<'a>> {
        let last = state.looking == 1;
        if last || !state.asleep {
            let State { roster, listener, .. } = &mut *state;
            listener.arm();
            let quiet = !last || roster.rest(&mut **listener);
            let some = roster.gather(&mut **listener, self.host);
            if some || !quiet || self.is_over(&state) {
                if !state.asleep {
                    state.listener.disarm();
                }
                return state;
            }
        }
        state.looking -= 1;
        if state.asleep {
            state.waiting += 1;
            while state.summoned == 0 && !self.is_over(&state) {
                state = self.summons.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting -= 1;
            state.summoned = state.summoned.saturating_sub(1);
        } else {
            state.asleep = true;
            drop(state);
            let slept = self.bells.sleep(None);
            self.bells.calm();
            if let Err(error) = slept.map_err(TargetError::os("wait for sources")) {
                self.end(Over::Failed(error));
            }
            state = self.lock();
            state.asleep = false;
            state.listener.disarm();
        }
        state.looking += 1;
        state
    }
}
