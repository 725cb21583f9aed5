//! The sending side: finds images, sends them ahead of their first use, and brings answers back.

mod call;
mod completion;
mod connection;
mod embed;
mod error;
mod handle;
mod library;
mod message;
mod options;
mod owned;
mod patience;
pub(crate) mod search;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ifunc::payload::Ifunc;

pub use call::Call;
pub use embed::{EmbeddedImage, include};
pub use error::{Error, LibraryError};
pub use handle::{Loaded, Registered};
pub use message::{LoadedMessage, Message};
pub use options::SourceOptions;

use completion::Completion;
use connection::Connection;
use handle::Handle;
use library::{Entries, Library};
use owned::{Guard, Owned};
use patience::{Next, Patience, after};

use crate::transports::address::{Address, AddressError};
use crate::transports::{ConnectError, connect};

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
#[derive(Clone, Debug)]
pub struct Source {
    shared: Arc<Owned<Connection>>,
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
    /// Connects to a target: `shm:NAME`, `ucx://HOST:PORT` or `loopback:NAME`. One that is not there yet is waited for, for
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
        Ok(Self {
            shared: Arc::new(Owned::new(Connection::connect(address, options)?)),
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
        let deadline = self.deadline();
        let token = self.retry(deadline, "flush", |connection| connection.try_sync())?;
        let waited = self.wait(token, deadline, "flush");
        let mut connection = self.lock();
        if matches!(waited, Err(Error::Timeout { .. })) {
            connection.abandon(token);
        }
        waited?;
        let mut reports = connection.take_reports();
        drop(connection);
        let first = reports.pop_front();
        for other in reports {
            tracing::warn!(other = %other.explain(), "an earlier send did not end well");
        }
        first.map_or(Ok(()), |first| Err(first.explain()))
    }

    /// A panic inside comes from `encode` of a payload; the connection's state is whole at every such point.
    fn lock(&self) -> Guard<'_, Connection> {
        self.shared.lock()
    }

    fn deadline(&self) -> Instant {
        after(self.lock().options().timeout)
    }

    /// Tries until it succeeds, fails or `deadline`. In between, others have the connection; and a link that was lost is
    /// made again.
    fn retry<R>(
        &self,
        deadline: Instant,
        what: &str,
        mut attempt: impl FnMut(&mut Connection) -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let mut patience = Patience::until(deadline);
        let mut reconnecting_until = None;
        loop {
            let mut connection = self.lock();
            if let Some(result) = attempt(&mut connection)? {
                return Ok(result);
            }
            if !connection.is_connected() {
                let window = connection.options().reconnect;
                drop(connection);
                let until = *reconnecting_until.get_or_insert_with(|| after(window));
                if let Err(why) = self.reconnect(until.min(deadline)) {
                    self.lock().give_up();
                    // That may be what the attempt waits for.
                    return match attempt(&mut self.lock())? {
                        Some(result) => Ok(result),
                        None => Err(Error::PeerGone {
                            what: what.into(),
                            why,
                        }),
                    };
                }
                continue;
            }
            match patience.next() {
                Next::Look => {}
                Next::Sleep(until) => {
                    connection.arm();
                    // What came between the look and the announcement rings nobody.
                    let result = attempt(&mut connection);
                    let waiter = connection.waiter().filter(|_| matches!(result, Ok(None)));
                    drop(connection);
                    if let Some(waiter) = waiter {
                        waiter.sleep(until);
                    }
                    self.lock().disarm();
                    if let Some(result) = result? {
                        return Ok(result);
                    }
                }
                Next::GiveUp(waited) => {
                    return Err(Error::Timeout {
                        what: what.into(),
                        waited,
                    });
                }
            }
        }
    }

    /// One attempt to make the link again, with the connection left to others meanwhile. An error says why there is no
    /// point in another attempt before `until`.
    fn reconnect(&self, until: Instant) -> Result<(), String> {
        let (address, limit) = {
            let mut connection = self.lock();
            let options = connection.options();
            if options.reconnect.is_zero() {
                return Err("reconnecting is switched off".into());
            }
            if connection.is_connected() {
                return Ok(());
            }
            if connection.connecting {
                drop(connection);
                std::thread::sleep(Patience::SLICE);
                return Ok(());
            }
            connection.connecting = true;
            (connection.address().clone(), after(options.connect_timeout))
        };
        let result = connect(&address, until.min(limit));
        let mut connection = self.lock();
        connection.connecting = false;
        match result {
            Ok(link) => connection.adopt(link),
            Err(error) if error.may_pass() && Instant::now() < until => {
                drop(connection);
                std::thread::sleep(Patience::SLICE);
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// One short attempt to make a lost link again, for those who do not wait.
    fn nudge(&self) {
        /// A target of this host that is there answers in less than a millisecond.
        const MOMENT: Duration = Duration::from_millis(20);
        let (connected, never) = {
            let connection = self.lock();
            (
                connection.is_connected(),
                connection.options().reconnect.is_zero(),
            )
        };
        if never {
            self.lock().give_up();
        } else if !connected {
            // What becomes of it, the next look says.
            let _ = self.reconnect(Instant::now() + MOMENT);
        }
    }

    /// Waits for a completion.
    fn wait(&self, token: u64, deadline: Instant, what: &str) -> Result<Completion, Error> {
        self.retry(deadline, what, |connection| {
            connection.try_take(token).transpose()
        })
    }
}

/// How long waits last unless said otherwise.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
