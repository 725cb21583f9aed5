//! The sending side: finds images, sends them ahead of their first use, and receives answers.

mod call;
mod completion;
pub(crate) mod connection;
mod driver;
mod embed;
mod encoding;
mod error;
mod handle;
pub(crate) mod library;
mod many;
mod message;
mod options;
mod scope;
pub(crate) mod shared;
pub(crate) mod slices;
mod stats;
mod stream;
mod submit;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc::payload::Ifunc;

pub use call::Call;
pub use driver::Driver;
pub use embed::{EmbeddedImage, include};
pub use encoding::{ByName, Encoding};
pub use error::{Error, LibraryError};
pub use handle::Handle;
pub use many::{Answers, NotAllSent};
pub use message::{Message, MessageTo};
pub use options::{Aggregation, Progress, SourceOptions};
pub use scope::{Finished, Scope};
pub use stats::StatsError;
pub use stream::Stream;

use crate::library::{find, folders};
use completion::explain_report;
use connection::Connection;
use library::Library;
use shared::SharedConnection;

use crate::driver::background;
use crate::driver::backoff::after;
use crate::driver::state::{Background, Want};
use crate::transport::ConnectError;
#[cfg(feature = "ucx")]
use crate::transport::Link;
use crate::transport::Route;
use crate::transport::address::{Address, AddressError};
#[cfg(feature = "ucx")]
use crate::ucx::{Worker, ucp_ep_h};

/// A connection to a target. Clones share it.
///
/// ```no_run
/// # mod hello { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
/// let source = ifunc_rt::Source::connect("shm:counter")?;
/// let add = source.register::<hello::add>()?;
/// println!("{}", add.call(&5)?.wait()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// When the target closes the connection or dies, the next call or send reconnects and sends the code again.
///
/// **Progress.** A thread that calls or waits makes progress. Between calls the source makes none, except for futures
/// that wait, for [batches](Handle::aggregated) that are due, and with a [`SourceOptions::progress`] that asks
/// for a thread: see [`Progress`].
///
/// **Threads.** Any number of threads use a source and its handles at once. What one thread sends arrives in the
/// order in which it was sent; what several threads send is interleaved. Each [`Call`] gets its own answer.
///
/// **Bounded memory.** The target's credits bound what was sent and not consumed. `send` and `call` wait for credit;
/// `try_send` and `try_call` return [`WouldBlock`](Error::WouldBlock). Aggregated invocations occupy one batch at
/// most ([`SourceOptions::aggregation`]). The source keeps up to 64 errors of earlier sends until the application
/// asks for them. Calls and futures belong to the caller; a dropped one keeps only its token until its answer
/// arrives.
#[derive(Clone, Debug)]
pub struct Source {
    shared: Arc<SharedConnection>,
    _users: Arc<Users>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The address does not parse.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The target cannot be reached, or refuses this source.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Source {
    /// Connects to a target: `shm:NAME`, `ucx://HOST:PORT`, `ucx-worker:HEX` or `loopback:NAME`. Waits up to
    /// [`SourceOptions::connect_timeout`] for a target that does not listen yet.
    ///
    /// # Errors
    /// The address does not parse; the target does not listen, refuses this source or has another version.
    pub fn connect(address: &str) -> Result<Self, SourceError> {
        Self::connect_with(address, SourceOptions::default())
    }

    /// Connects with these options instead of the defaults.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(address: &str, options: SourceOptions) -> Result<Self, SourceError> {
        let address: Address = address.parse()?;
        Self::of(Connection::connect(Route::Address(address), options, None)?)
    }

    /// Connects to the target that [listens](crate::TargetBuilder::listen_on) on the worker at the other end of an
    /// endpoint of the application's. See [`ucx`](crate::ucx).
    ///
    /// When the target closes the connection, the next use repeats the handshake over the same endpoint, until the
    /// application reports that its peer [is gone](crate::ucx::Worker::peer_gone).
    ///
    /// # Errors
    /// As [`connect`](Self::connect). Where only the application makes progress and it makes none meanwhile, a
    /// timeout.
    ///
    /// # Safety
    /// The endpoint must belong to this worker. It must stay alive until the source and everything made of it is
    /// dropped, the application has reported that its peer is gone, or the worker is closed.
    #[cfg(feature = "ucx")]
    pub unsafe fn over(worker: &Worker, ep: ucp_ep_h, options: SourceOptions) -> Result<Self, SourceError> {
        // SAFETY: the caller's promise.
        let route = Route::Endpoint(unsafe { worker.over(ep, &options) });
        Self::of(Connection::connect(route, options, None)?)
    }

    #[cfg(feature = "ucx")]
    pub(crate) fn of_link(route: Route, link: Link, options: SourceOptions) -> Result<Self, SourceError> {
        Self::of(Connection::of_link(Some(route), link, options, None)?)
    }

    pub(crate) fn of(connection: Connection) -> Result<Self, SourceError> {
        let config = connection.driver_config();
        let shared = Arc::new(SharedConnection::new(connection, config));
        let users = Arc::new(Users(Arc::clone(&shared)));
        if config.always {
            // Before any future waits.
            shared.lock().background = Background::Runs;
            background::start(&shared).map_err(|source| ConnectError::Io {
                doing: "starting the thread that makes progress".into(),
                source,
            })?;
        }
        Ok(Self {
            shared,
            _users: users,
        })
    }

    /// The typed handle of an ifunc. The source searches for its library `NAME.so` in `IFUNC_LIB_DIR`, then in
    /// `UCX_IFUNC_LIB_DIR`, beside the executable, and in `target/ifunc/release` of the workspace
    /// ([`folders`]). It reads the library and does not open it, so none of the library's code runs in this
    /// process.
    ///
    /// # Errors
    /// There is no such library; it is no ifunc library; it was built with other types than this program.
    pub fn register<F: Ifunc>(&self) -> Result<Handle<F>, LibraryError> {
        let path = find(F::NAME, folders())?;
        self.register_path::<F>(path)
    }

    /// As [`register`](Self::register), from this file.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_path<F: Ifunc>(&self, path: impl AsRef<Path>) -> Result<Handle<F>, LibraryError> {
        self.typed(Library::read(path.as_ref(), Some(F::NAME))?)
    }

    /// As [`register`](Self::register), from the bytes of an image or of a library that holds it: for a program that
    /// ships as one file.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_bytes<F: Ifunc>(&self, bytes: &[u8]) -> Result<Handle<F>, LibraryError> {
        self.typed(Library::parse(bytes, Some(F::NAME), Path::new(F::NAME))?)
    }

    fn typed<F: Ifunc>(&self, library: Library) -> Result<Handle<F>, LibraryError> {
        library.check_types::<F>()?;
        Ok(Handle::new(self, library))
    }

    /// The handle of an ifunc by name, written in Rust or C. The source searches for the library as
    /// [`register`](Self::register) does, then opens it, so that it can call its `payload_init`.
    ///
    /// # Safety
    /// Opening a library runs its constructors, and sending runs its `payload_init` on the arguments of
    /// [`Handle::call`]. The file must be an ifunc library whose author is trusted with this process.
    ///
    /// # Errors
    /// There is no such library, or it is no ifunc library.
    pub unsafe fn load(&self, name: &str) -> Result<Handle<ByName>, LibraryError> {
        let path = find(name, folders())?;
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open(&path, Some(name))? };
        Ok(Handle::new(self, library))
    }

    /// As [`load`](Self::load), from this file.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub unsafe fn load_path(&self, path: impl AsRef<Path>) -> Result<Handle<ByName>, LibraryError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open(path.as_ref(), None)? };
        Ok(Handle::new(self, library))
    }

    /// As [`load_path`](Self::load_path), for the entry of this name: of a library that holds several images, or of an image with
    /// several entries.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    ///
    /// # Errors
    /// As [`load`](Self::load), and the library has no such entry.
    pub unsafe fn load_entry_path(
        &self,
        path: impl AsRef<Path>,
        name: &str,
    ) -> Result<Handle<ByName>, LibraryError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open(path.as_ref(), Some(name))? };
        Ok(Handle::new(self, library))
    }

    /// A handle from the bytes of an image or of a library that holds it. The source opens nothing, so there is no
    /// `payload_init`: the argument of [`Handle::call`] is the payload. Of an image with several entries
    /// [`load_entry`](Self::load_entry) takes one.
    ///
    /// # Errors
    /// Bytes that are no image, or an image with several entries.
    pub fn load_bytes(&self, bytes: &[u8]) -> Result<Handle<ByName>, LibraryError> {
        let library = Library::parse(bytes, None, Path::new("(bytes)"))?;
        Ok(Handle::new(self, library))
    }

    /// As [`load_bytes`](Self::load_bytes), for the entry of this name. The handles of several entries of one image share its
    /// installation: the image travels once.
    ///
    /// # Errors
    /// Bytes that are no image, or an image without this entry.
    pub fn load_entry(&self, bytes: &[u8], name: &str) -> Result<Handle<ByName>, LibraryError> {
        let library = Library::parse(bytes, Some(name), Path::new("(bytes)"))?;
        Ok(Handle::new(self, library))
    }

    /// Waits until the target has consumed everything that was sent before.
    ///
    /// # Errors
    /// The error of an earlier `send`, if one failed; the target is gone; the deadline of [`SourceOptions::timeout`]
    /// has passed.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_until(self.shared.deadline())
    }

    /// As [`flush`](Self::flush), but waits at most `timeout`.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.flush_until(after(timeout))
    }

    fn flush_until(&self, deadline: Instant) -> Result<(), Error> {
        self.shared.request(deadline, FLUSH, Connection::try_flush)?;
        self.say_reports()
    }

    /// As [`flush`](Self::flush), as a future. A dropped future waits no longer.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and [`Error::NoThread`].
    pub async fn flush_async(&self) -> Result<(), Error> {
        self.shared.request_async(FLUSH, Connection::try_flush).await?;
        self.say_reports()
    }

    /// Sends the open batch, into which [aggregated](Handle::aggregated) handles put their invocations. Waits up
    /// to [`SourceOptions::timeout`] for credit, and does not wait for the target to run them.
    ///
    /// # Errors
    /// There is no credit until the deadline: the source sends the batch as soon as there is. The target is gone.
    pub fn push(&self) -> Result<(), Error> {
        let push = |connection: &mut Connection| Ok(connection.try_push().then_some(()));
        self.shared
            .retry(self.shared.deadline(), PUSH, Want::Credit, push)
    }

    /// Moves the progress for this source's futures into an event loop of the caller's.
    ///
    /// A blocking wait ([`Call::wait`], [`flush`](Self::flush), a `send` without credit) receives itself, for its own
    /// thread and for all other threads that use this source meanwhile. A future cannot: between two polls another
    /// thread has to receive its completion and wake it. By default that is a thread of the source's. The source
    /// starts it when the first future waits, and it sleeps while no future does. As long as the [`Driver`] lives,
    /// the calls of [`Driver::progress`] receive instead.
    ///
    /// # Errors
    /// The kernel has no descriptor left, or this source has a driver already.
    pub fn driver(&self) -> std::io::Result<Driver> {
        Driver::new(self)
    }

    /// What carries the connection now, as the transport reports it: over UCX the transports and devices of its
    /// endpoint, such as `sysv/memory tcp/lo`; otherwise `shm` or `loopback`. Empty while there is no connection.
    #[must_use]
    pub fn transport(&self) -> String {
        let waiter = self.shared.lock().connection.waiter();
        waiter.map_or_else(String::new, |waiter| waiter.carried_by())
    }

    fn say_reports(&self) -> Result<(), Error> {
        let mut reports = self.shared.lock().connection.protocol.caller.take_reports();
        let first = reports.pop_front();
        for other in reports {
            tracing::warn!(other = %explain_report(other), "an earlier send did not end well");
        }
        first.map_or(Ok(()), |first| Err(explain_report(first)))
    }

    pub(crate) fn shared(&self) -> &Arc<SharedConnection> {
        &self.shared
    }
}

/// Name of a flush in errors.
const FLUSH: &str = "flush";
/// Name of a push in errors.
const PUSH: &str = "the open batch";

/// The users of a source, without the thread that receives for futures.
#[derive(Debug)]
struct Users(Arc<SharedConnection>);

impl Drop for Users {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Default of [`SourceOptions::timeout`].
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::Source;
    use crate::driver::driven::Driven as _;

    /// What tests see of a source. None of it makes progress.
    impl Source {
        /// Numbers of calls not done or not taken, futures, credit waiters and waiting threads.
        pub(crate) fn remains(&self) -> [usize; 4] {
            let state = self.shared.lock();
            let [futures, credit, threads] = state.waiters();
            [
                state.connection.protocol.caller.calls.in_use(),
                futures,
                credit,
                threads,
            ]
        }

        /// Number of received events.
        pub(crate) fn received(&self) -> u64 {
            self.shared.lock().received()
        }

        /// Whether there is a link, as far as the source knows.
        pub(crate) fn is_connected(&self) -> bool {
            self.shared.lock().connection.is_connected()
        }
    }
}
