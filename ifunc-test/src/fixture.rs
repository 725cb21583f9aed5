//! A target and a source in one thread.

use std::any::{Any, TypeId};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ifunc::payload::{Ifunc, TargetArgs};
use ifunc_rt::{ByName, Call, Handle, Policy, Source, Target, TargetBuilder, library};

use crate::{Error, age};

/// Longest time without progress. The polling thread runs the ifunc itself, so this does not bound the ifunc's run
/// time.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A target within the test, for several calls in a row: images stay installed, and their statics with them.
///
/// ```no_run
/// # mod counters { use ifunc::prelude::*; #[ifunc] pub fn add(delta: u64, counter: &mut u64) -> u64 { *counter += delta; *counter } }
/// # use counters::add;
/// let mut fixture = ifunc_test::Fixture::new()?;
/// let mut counter = 0_u64;
/// assert_eq!(fixture.run::<add>(5, &mut counter)?, 5);
/// assert_eq!(fixture.run::<add>(6, &mut counter)?, 11);
/// # Ok::<(), ifunc_test::Error>(())
/// ```
///
/// Everything runs on the calling thread.
#[derive(Debug)]
pub struct Fixture {
    // Handles are released over the connection, so they are dropped before the target.
    registered: HashMap<TypeId, Box<dyn Any>>,
    loaded: HashMap<String, Handle<ByName>>,
    source: Source,
    target: Target,
    accepted: Accepted,
}

/// The images that a fixture loaded: it runs no others, from no source.
#[derive(Clone, Debug, Default)]
struct Accepted(Arc<Mutex<HashSet<[u8; 32]>>>);

impl Accepted {
    fn ids(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fixture {
    /// Makes a fixture with the exports of this process and no further imports.
    ///
    /// # Errors
    /// Two exports have one name; memory is exhausted.
    pub fn new() -> Result<Self, Error> {
        // SAFETY: the settings add no imports.
        unsafe { Self::with(|builder| builder) }
    }

    /// Makes a fixture with the `settings` of its target: further imports ([`allow`](TargetBuilder::allow)), limits,
    /// a policy of its own.
    ///
    /// ```no_run
    /// extern "C" fn answer() -> u64 { 42 }
    /// let allowed = |builder: ifunc_rt::TargetBuilder| builder.allow("answer", answer as *const _);
    /// // SAFETY: the ifuncs of this test declare `answer` as it is, and it calls nothing back.
    /// let fixture = unsafe { ifunc_test::Fixture::with(allowed) }?;
    /// # Ok::<(), ifunc_test::Error>(())
    /// ```
    ///
    /// # Safety
    /// As for [`Policy::accept_unsigned`], for the imports in the settings: they must be what the ifuncs of this
    /// fixture take them for, and must tolerate that a jump leaves them if they call an ifunc back.
    ///
    /// # Errors
    /// As [`new`](Self::new), and the errors of the settings.
    pub unsafe fn with(settings: impl FnOnce(TargetBuilder) -> TargetBuilder) -> Result<Self, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = format!("loopback:ifunc-test-{}-{number}", std::process::id());
        let accepted = Accepted::default();
        let known = accepted.clone();
        // SAFETY: this value read these images from the developer's build folders, which are trusted as `cargo test`
        // trusts the test itself (see the crate). Their types were compared with those of their handles, or the
        // caller of `run_by_name` promised them. The caller promised the allowed imports.
        let policy = unsafe { Policy::trust_same_user() };
        let builder =
            Target::builder().policy(policy.accept_if(move |_, image| known.ids().contains(image.id)));
        let target = settings(builder).listen(&address)?;
        Ok(Self {
            registered: HashMap::new(),
            loaded: HashMap::new(),
            source: Source::connect(&address)?,
            target,
            accepted,
        })
    }

    /// Runs an ifunc on the target arguments and returns its answer. See [`run`](crate::run).
    ///
    /// # Errors
    /// As [`run`](crate::run).
    pub fn run<'p, F: Ifunc>(
        &mut self,
        payload: impl Borrow<F::Payload<'p>>,
        target: &mut (impl TargetArgs + 'static),
    ) -> Result<F::Answer, Error> {
        let call = self.call::<F>(payload.borrow(), target)?;
        self.finish(call, F::NAME, target)
    }

    /// As [`run`](Self::run), for an ifunc that returns nothing and answers through its context: returns the bytes.
    ///
    /// # Errors
    /// As [`run`](crate::run).
    pub fn run_bytes<'p, F: Ifunc>(
        &mut self,
        payload: impl Borrow<F::Payload<'p>>,
        target: &mut (impl TargetArgs + 'static),
    ) -> Result<Vec<u8>, Error> {
        let call = self.call::<F>(payload.borrow(), target)?;
        self.finish(call.undecoded(), F::NAME, target)
    }

    /// Runs an ifunc by name, written in Rust or C: its `payload_init` makes the payload of `source_args`. Returns
    /// the bytes of its answer.
    ///
    /// # Safety
    /// As for [`Source::load`], and `target` must have the type that the ifunc takes: a C ifunc does not declare it.
    ///
    /// # Errors
    /// As [`run`](crate::run).
    pub unsafe fn run_by_name<T: TargetArgs + 'static>(
        &mut self,
        name: &str,
        source_args: &[u8],
        target: &mut T,
    ) -> Result<Vec<u8>, Error> {
        let loaded = match self.loaded.get(name) {
            Some(loaded) => loaded.clone(),
            None => {
                let path = find(name)?;
                // SAFETY: the caller's promise.
                let loaded = unsafe { self.source.load_path(path) }?;
                self.accepted.ids().insert(*loaded.id());
                self.loaded.insert(name.to_owned(), loaded.clone());
                loaded
            }
        };
        let call = self.submit(name, target, || loaded.try_call(source_args))?;
        self.finish(call, name, target)
    }

    /// Number of installed images.
    #[must_use]
    pub fn images(&self) -> usize {
        self.target.images()
    }

    /// The address of the target, for further sources in this process. The target refuses images that the fixture did not load.
    #[must_use]
    pub fn address(&self) -> String {
        self.target.address()
    }

    fn call<F: Ifunc>(
        &mut self,
        payload: &F::Payload<'_>,
        target: &mut (impl TargetArgs + 'static),
    ) -> Result<Call<F::Answer>, Error> {
        let known = self.registered.get(&TypeId::of::<F>());
        let handle = match known.and_then(|handle| handle.downcast_ref::<Handle<F>>()) {
            Some(handle) => handle.clone(),
            None => {
                let handle = self.source.register_path::<F>(find(F::NAME)?)?;
                self.accepted.ids().insert(*handle.id());
                self.registered
                    .insert(TypeId::of::<F>(), Box::new(handle.clone()));
                handle
            }
        };
        self.submit(F::NAME, target, || handle.try_call(payload))
    }

    /// Sends; polls the target while there is no credit.
    fn submit<A, T: TargetArgs + 'static>(
        &mut self,
        name: &str,
        target: &mut T,
        mut attempt: impl FnMut() -> Result<Call<A>, ifunc_rt::Error>,
    ) -> Result<Call<A>, Error> {
        self.until_done(name, target, || match attempt() {
            Err(ifunc_rt::Error::WouldBlock { .. }) => None,
            result => Some(result),
        })
    }

    fn finish<A, T: TargetArgs + 'static>(
        &mut self,
        mut call: Call<A>,
        name: &str,
        target: &mut T,
    ) -> Result<A, Error> {
        self.until_done(name, target, || call.try_wait())
    }

    fn until_done<R, T: TargetArgs + 'static>(
        &mut self,
        name: &str,
        target: &mut T,
        mut attempt: impl FnMut() -> Option<Result<R, ifunc_rt::Error>>,
    ) -> Result<R, Error> {
        let mut since = Instant::now();
        loop {
            if let Some(result) = attempt() {
                return Ok(result?);
            }
            if self.target.poll(target) > 0 {
                since = Instant::now();
            } else if since.elapsed() > TIMEOUT {
                return Err(Error::Call(ifunc_rt::Error::Timeout {
                    what: name.to_owned(),
                    waited: TIMEOUT,
                }));
            }
        }
    }
}

/// The library of an ifunc. Prints a note if it is older than the sources.
fn find(name: &str) -> Result<impl AsRef<Path>, Error> {
    let path = library::find(name, library::folders())?;
    if let Some(source) = age::newer_source(&path) {
        eprintln!(
            "note: `{}` is older than `{}`; help: {} builds it first",
            path.display(),
            source.display(),
            crate::command()
        );
    }
    Ok(path)
}
