//! A target on a thread of its own.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use ifunc::payload::TargetArgs;

use super::connection::Connection;
use super::{Target, TargetError};
use crate::serve::doorbell::StopHandle;

/// How long a dropped `Serving` waits for the running invocation.
const PATIENCE: Duration = Duration::from_secs(5);

/// A target that serves on a thread of its own: see [`Target::spawn`].
///
/// When dropped, it stops the target and waits at most 5 s for the running invocation, which cannot be interrupted. A
/// longer invocation continues on its thread, which drops what the target owns when the invocation ends.
pub struct Serving<T> {
    address: String,
    stop: StopHandle,
    ended: Receiver<Result<T, ServeError<T>>>,
    taken: bool,
}

/// Why a target stopped serving without a request to stop, and what it owned.
#[derive(thiserror::Error)]
#[error("the target at `{address}` stopped serving: {why}")]
#[non_exhaustive]
pub struct ServeError<T> {
    /// The address at which it listened.
    pub address: String,
    /// Why.
    #[source]
    pub why: ServeEnd,
    /// The value that it owned. After a panic it is in the state at the panic.
    pub value: T,
}

/// Why a target stopped serving without a request to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeEnd {
    /// The kernel refused something.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A function of the host's that serving calls panicked: the check of
    /// [`Policy::accept_if`](crate::Policy::accept_if), or the drop of what the target owns. (Panics of
    /// ifuncs, and of exports that they call, end the invocation and not the target.)
    #[error("a function of this process panicked: {0}")]
    Panicked(String),
}

impl Target {
    /// Serves on a thread of its own, which owns `value` until it is stopped. The target keeps listening meanwhile;
    /// after it has stopped, its address is free.
    ///
    /// ```no_run
    /// // SAFETY: only processes of this user connect, and they may do here whatever they like.
    /// let builder = unsafe { ifunc_rt::Target::builder().accept_code() };
    /// let serving = builder.listen("shm:counter")?.spawn(0u64)?;
    /// // … sources come and go …
    /// let counter = serving.stop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The kernel refuses a thread. [`TargetError::Names`], if exports use another type by the opaque name of `T`.
    /// [`TargetError::OneThread`], if the target uses an application's worker that only
    /// one thread may use.
    pub fn spawn<T: TargetArgs + Send + 'static>(self, value: T) -> Result<Serving<T>, TargetError> {
        self.name_type::<T>()?;
        self.spawn_with(value, |target, value| target.serve(value))
    }

    /// Starts a thread that runs `serve`.
    pub(super) fn spawn_with<T: Send + 'static>(
        mut self,
        mut value: T,
        serve: impl FnOnce(&mut Self, &mut T) -> Result<(), TargetError> + Send + 'static,
    ) -> Result<Serving<T>, TargetError> {
        if !self.links.listener.serves_any_thread() {
            return Err(TargetError::OneThread);
        }
        // A caller that polled before may wait for answers from now on.
        self.links.iter().for_each(Connection::release_thread);
        let address = self.address();
        let stop = self.stop_handle();
        let (end, ended) = channel();
        let serve = {
            let (address, stop) = (address.clone(), stop.clone());
            move || {
                let _here = stop.enlist();
                let served = catch_unwind(AssertUnwindSafe(|| serve(&mut self, &mut value)));
                // The sources see the close, and the address is free, before the result is sent. The drop may run code of
                // the host's, too.
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(self)));
                let why = match served.and_then(|served| dropped.map(|()| served)) {
                    Ok(Ok(())) => {
                        let _ = end.send(Ok(value));
                        return;
                    }
                    Ok(Err(error)) => ServeEnd::Target(error),
                    Err(panic) => ServeEnd::Panicked(message(&*panic)),
                };
                tracing::error!(address, %why, "the target stopped serving");
                let _ = end.send(Err(ServeError { address, why, value }));
            }
        };
        thread::Builder::new()
            .name("ifunc-serve".into())
            .spawn(serve)
            .map_err(|error| TargetError::Os {
                what: "start the thread that serves",
                error,
            })?;
        Ok(Serving {
            address,
            stop,
            ended,
            taken: false,
        })
    }
}

impl<T> Serving<T> {
    /// The address that sources connect to.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A handle that stops the target from another thread.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Stops the target and returns the value that it owned, after the running invocation has ended, however long
    /// that takes.
    ///
    /// # Errors
    /// The target had stopped before: the error holds the reason and the value.
    ///
    /// # Panics
    /// If an invocation of this target calls it, which would wait for its own end.
    pub fn stop(mut self) -> Result<T, ServeError<T>> {
        loop {
            if let Some(ended) = self.stop_timeout(Duration::from_secs(3600)) {
                return ended;
            }
        }
    }

    /// As [`stop`](Self::stop), but waits at most `timeout`. `None`: the running invocation has not ended; call it
    /// again, or drop this value to stop waiting.
    ///
    /// # Errors
    /// As [`stop`](Self::stop).
    ///
    /// # Panics
    /// As [`stop`](Self::stop); or if the value was already returned.
    pub fn stop_timeout(&mut self, timeout: Duration) -> Option<Result<T, ServeError<T>>> {
        assert!(!self.taken, "what this target owned was returned already");
        assert!(!self.stop.is_served_here(), "an invocation waits for its own end");
        self.stop.stop();
        match self.ended.recv_timeout(timeout) {
            Ok(ended) => {
                self.taken = true;
                Some(ended)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends its result"),
        }
    }
}

impl<T> Drop for Serving<T> {
    fn drop(&mut self) {
        self.stop.stop();
        // If an invocation drops it, the invocation ends after this drop, and then the target.
        if self.taken || self.stop.is_served_here() {
            return;
        }
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(PATIENCE) {
            tracing::warn!(
                address = self.address,
                "an invocation takes longer than {PATIENCE:?}; its target ends after it"
            );
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(message), _) => (*message).to_owned(),
        (_, Some(message)) => message.clone(),
        _ => "(no message)".to_owned(),
    }
}

impl<T> fmt::Debug for ServeError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeError")
            .field("address", &self.address)
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Serving<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
