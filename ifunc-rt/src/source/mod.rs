//! The sending side: finds images, sends them ahead of their first use, and brings answers back.

mod call;
mod completion;
mod connection;
mod driver;
mod embed;
mod error;
mod handle;
mod library;
mod message;
mod options;
pub(crate) mod search;
mod shared;
mod stats;
mod submit;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc::payload::Ifunc;

pub use call::Call;
pub use driver::Driver;
pub use embed::{EmbeddedImage, include};
pub use error::{Error, LibraryError};
pub use handle::{Loaded, Registered};
pub use message::{LoadedMessage, Message};
pub use options::{Aggregation, Progress, SourceOptions};
pub use stats::StatsError;

use connection::{Connection, explain_report};
use handle::Handle;
use library::{Entries, Library};
use shared::SharedConnection;

use crate::driver::backoff::after;
#[cfg(test)]
use crate::driver::driven::Driven;
use crate::driver::state::{Locked, Want};
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
/// When the target goes away and comes back, the next call or send connects again and sends the code again, unasked.
///
/// **Who makes progress.** Whoever calls and waits; between calls nobody, unless futures wait, what
/// [travels together](Registered::aggregated) is due, or [`SourceOptions::progress`] says that a thread does: see [`Progress`].
///
/// **Threads.** Any number of them use a source and its handles at once. What one thread sends arrives in the order in which
/// it was sent; what several send is mixed. Every answer goes to the [`Call`] that asked for it.
///
/// **Nothing grows without limit.** What was sent and not consumed is bounded by the target's credits: `send` and `call` wait for
/// them, `try_send` and `try_call` say [`WouldBlock`](Error::WouldBlock); what travels together, by one batch
/// ([`SourceOptions::aggregation`]). Of what went wrong with earlier sends, 64 are kept until
/// somebody asks. Calls and futures are the caller's own; one that is dropped leaves nothing behind but its number until
/// its answer has come.
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
    /// The target cannot be reached, or does not want this source.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

impl Source {
    /// Connects to a target: `shm:NAME`, `ucx://HOST:PORT`, `ucx-worker:HEX` or `loopback:NAME`. One that is not there yet is waited for, for
    /// a while ([`SourceOptions::connect_timeout`]).
    ///
    /// # Errors
    /// An address that does not parse, a target that is not there, refuses or speaks another version.
    pub fn connect(address: &str) -> Result<Self, SourceError> {
        Self::connect_with(address, SourceOptions::default())
    }

    /// Connects with other deadlines than the usual ones.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_with(address: &str, options: SourceOptions) -> Result<Self, SourceError> {
        let address: Address = address.parse()?;
        Self::of(Connection::connect(Route::Address(address), options)?)
    }

    /// Connects to the target that [listens](crate::TargetBuilder::listen_on) on the worker at the other end of an
    /// endpoint of the application's. See [`ucx`](crate::ucx).
    ///
    /// When the target goes and comes back, the next use says hello over the same endpoint again, until the application
    /// says that its peer [is gone](crate::ucx::Worker::peer_gone).
    ///
    /// # Errors
    /// As [`connect`](Self::connect). Where nobody makes progress but the application, and not meanwhile, it is a timeout.
    ///
    /// # Safety
    /// The endpoint must be of this worker, and alive until the source and everything made of it is dropped, the application has
    /// said that its peer is gone, or the worker is closed.
    #[cfg(feature = "ucx")]
    pub unsafe fn over(worker: &Worker, ep: ucp_ep_h, options: SourceOptions) -> Result<Self, SourceError> {
        // SAFETY: the caller's promise.
        let route = Route::Endpoint(unsafe { worker.over(ep) });
        Self::of(Connection::connect(route, options)?)
    }

    #[cfg(feature = "ucx")]
    pub(crate) fn of_link(route: Route, link: Link, options: SourceOptions) -> Result<Self, SourceError> {
        Self::of(Connection::of_link(route, link, options)?)
    }

    fn of(connection: Connection) -> Result<Self, SourceError> {
        let config = connection.driver_config();
        let shared = Arc::new(SharedConnection::new(connection, config));
        let users = Arc::new(Users(Arc::clone(&shared)));
        if config.always {
            shared.start_background().map_err(|source| ConnectError::Io {
                doing: "starting the thread that makes progress".into(),
                source,
            })?;
        }
        Ok(Self {
            shared,
            _users: users,
        })
    }

    /// The typed handle of an ifunc. Its library is looked for as `NAME.so` in `IFUNC_LIB_DIR`, then
    /// `UCX_IFUNC_LIB_DIR`, beside the executable, and in `target/ifunc/release` of the workspace. The library is read, not opened: no code
    /// of it runs in this process.
    ///
    /// # Errors
    /// No such library, one that is no ifunc library, or one that was built from other types than this program.
    pub fn register<F: Ifunc>(&self) -> Result<Registered<F>, LibraryError> {
        let path = search::find(F::NAME)?;
        self.register_path::<F>(path)
    }

    /// As [`register`](Self::register), from this file.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_path<F: Ifunc>(&self, path: impl AsRef<Path>) -> Result<Registered<F>, LibraryError> {
        let library = Library::read(path.as_ref(), Some(F::NAME))?;
        library.check_types::<F>()?;
        Ok(Registered::new(Handle::new(self.clone(), library, F::ALIGN)))
    }

    /// As [`register`](Self::register), from the bytes of an image (or of a library that holds it), as a program carries them that ships as one
    /// file.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn register_bytes<F: Ifunc>(&self, bytes: &[u8]) -> Result<Registered<F>, LibraryError> {
        let library = Library::parse(bytes, Some(F::NAME), Path::new(F::NAME))?;
        library.check_types::<F>()?;
        Ok(Registered::new(Handle::new(self.clone(), library, F::ALIGN)))
    }

    /// The handle of an ifunc by name, Rust or C. It is looked for as in [`register`](Self::register), then opened, so that its
    /// `payload_init` can be called.
    ///
    /// # Safety
    /// Opening a library runs its constructors, and sending runs its `payload_init` on what is passed to
    /// [`Loaded::call`]: the file must be an ifunc library whose author is trusted with this process.
    ///
    /// # Errors
    /// No such library, or one that is no ifunc library.
    pub unsafe fn load(&self, name: &str) -> Result<Loaded, LibraryError> {
        let path = search::find(name)?;
        // SAFETY: the caller's promise.
        unsafe { self.open(&path, Some(name)) }
    }

    /// As [`load`](Self::load), from this file.
    ///
    /// # Safety
    /// As for [`load`](Self::load).
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub unsafe fn load_path(&self, path: impl AsRef<Path>) -> Result<Loaded, LibraryError> {
        // SAFETY: the caller's promise.
        unsafe { self.open(path.as_ref(), None) }
    }

    /// A handle from the bytes of an image (or of a library that holds it). Nothing is opened, so there is no `payload_init`: what is passed to
    /// [`Loaded::call`] is the payload.
    ///
    /// # Errors
    /// Bytes that are no image.
    pub fn load_bytes(&self, bytes: &[u8]) -> Result<Loaded, LibraryError> {
        let library = Library::parse(bytes, None, Path::new("(bytes)"))?;
        let align = library.payload_align();
        Ok(Loaded::new(Handle::new(self.clone(), library, align), None))
    }

    unsafe fn open(&self, path: &Path, name: Option<&str>) -> Result<Loaded, LibraryError> {
        let bytes = library::read(path)?;
        let library = Library::parse(&bytes, name, path)?;
        // SAFETY: the caller's promise.
        let entries = unsafe { Entries::open(&bytes, &library)? };
        let align = library.payload_align();
        Ok(Loaded::new(
            Handle::new(self.clone(), library, align),
            Some(entries),
        ))
    }

    /// Waits until the target has consumed everything that was sent before.
    ///
    /// # Errors
    /// What went wrong with an earlier `send`, if anything did; the target gone; the deadline of
    /// [`SourceOptions::timeout`].
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_until(self.shared.deadline())
    }

    /// As [`flush`](Self::flush), for `timeout` at most.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.flush_until(after(timeout))
    }

    fn flush_until(&self, deadline: Instant) -> Result<(), Error> {
        let shared = &self.shared;
        let token = shared.retry(deadline, FLUSH, Want::Credit, |connection| {
            Ok(connection.try_flush())
        })?;
        let waited = shared.complete(token, deadline, FLUSH);
        if matches!(waited, Err(Error::Timeout { .. })) {
            self.lock().connection.abandon(token);
        }
        waited?;
        self.say_reports()
    }

    /// As [`flush`](Self::flush), as a future. Dropped, it waits no more.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and [`Error::NoThread`].
    pub async fn flush_async(&self) -> Result<(), Error> {
        submit::flush(self).await?;
        self.say_reports()
    }

    /// Sends what is open: the batch into which [aggregated](Registered::aggregated) handles put what they send. Waits for room to send
    /// it, for as long as [`SourceOptions::timeout`] says, and not for the target.
    ///
    /// # Errors
    /// No room until then: it is sent as soon as there is. The target gone.
    pub fn push(&self) -> Result<(), Error> {
        if self.lock().connection.try_push() {
            return Ok(());
        }
        let push = |connection: &mut Connection| Ok(connection.try_push().then_some(()));
        self.shared
            .retry(self.shared.deadline(), PUSH, Want::Credit, push)
    }

    /// Takes the receiving for this source's futures into an event loop of the caller's.
    ///
    /// Blocking waits ([`Call::wait`], [`flush`](Self::flush), a `send` without room) receive themselves: for their own thread and for
    /// all others that use this source meanwhile. A future cannot: between two polls, somebody else has to receive
    /// what it waits for and wake it. That is a thread of the source's, started when the first future has to wait and asleep while
    /// none does; or, from here on and as long as the [`Driver`] lives, whoever calls [`Driver::progress`].
    ///
    /// # Errors
    /// The kernel has no descriptor left, or this source has a driver.
    pub fn driver(&self) -> std::io::Result<Driver> {
        Driver::new(self)
    }

    /// What carries the connection at this moment, by the transport's own account: over UCX the transports and devices of its
    /// endpoint, such as `sysv/memory tcp/lo`; else `shm` or `loopback`. Empty while there is no connection.
    #[must_use]
    pub fn transport(&self) -> String {
        let waiter = self.lock().connection.waiter();
        waiter.map_or_else(String::new, |waiter| waiter.carried_by())
    }

    /// Calls that are not done or not taken, futures, waits for room and threads that wait. For tests.
    #[cfg(test)]
    pub(crate) fn remains(&self) -> [usize; 4] {
        {
            let state = self.lock();
            let [futures, credit, threads] = state.waiters();
            [state.connection.taken(), futures, credit, threads]
        }
    }

    /// How much was taken in. For tests: it makes no progress.
    #[cfg(test)]
    pub(crate) fn received(&self) -> u64 {
        self.lock().received()
    }

    /// Whether there is a link, as far as is known. For tests: it makes no progress.
    #[cfg(test)]
    pub(crate) fn is_connected(&self) -> bool {
        self.lock().connection.is_connected()
    }

    fn say_reports(&self) -> Result<(), Error> {
        let mut reports = self.lock().connection.take_reports();
        let first = reports.pop_front();
        for other in reports {
            tracing::warn!(other = %explain_report(other), "an earlier send did not end well");
        }
        first.map_or(Ok(()), |first| Err(explain_report(first)))
    }

    #[inline]
    fn lock(&self) -> Locked<'_, Connection> {
        self.shared.lock()
    }

    fn shared(&self) -> &Arc<SharedConnection> {
        &self.shared
    }
}

/// What a flush is called in errors.
const FLUSH: &str = "flush";
/// And a push.
const PUSH: &str = "the open batch";

/// Those who use a source: not the thread that receives for futures.
#[derive(Debug)]
struct Users(Arc<SharedConnection>);

impl Drop for Users {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// How long waits last unless said otherwise.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
