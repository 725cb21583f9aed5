//! A policy that changes while its target serves.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ifunc_abi::refusal::Refusal;
use ifunc_abi::status::Rejection;

use super::connect::Connect;
use super::{Policy, PolicyError, Rules};
#[cfg(feature = "tls")]
use crate::keys::TlsKeys;
use crate::os::EventFd;
use crate::transport::Peer;
use crate::transport::address::Knows;

/// Which peers connect, for the listener and for all that asks later.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedConnect(Arc<ConnectState>);

#[derive(Debug, Default)]
struct ConnectState {
    connect: RwLock<Arc<Connect>>,
    /// No peer connects for now.
    is_closed: AtomicBool,
}

/// What a source is told that may try again later.
pub(crate) const CLOSED: &str = "it takes no more connections for now: it is about to stop";

impl SharedConnect {
    /// Those that connect now.
    pub(crate) fn get(&self) -> Arc<Connect> {
        let connect = self.0.connect.read();
        Arc::clone(&connect.unwrap_or_else(PoisonError::into_inner))
    }

    fn set(&self, connect: Connect) {
        *self.0.connect.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(connect);
    }

    /// Whether no peer connects for now, whoever it is.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }
}

impl From<Connect> for SharedConnect {
    fn from(connect: Connect) -> Self {
        Self(Arc::new(ConnectState {
            connect: RwLock::new(Arc::new(connect)),
            is_closed: AtomicBool::new(false),
        }))
    }
}

/// The policy of a target that serves.
pub(crate) struct LivePolicy {
    /// Counts the policies before this one. A thread that serves compares it with the last one that it has applied.
    generation: AtomicU64,
    rules: RwLock<Arc<Rules>>,
    pub(crate) connect: SharedConnect,
    /// The policy itself, by which the next one is compared: one thread at a time replaces it.
    policy: Mutex<Policy>,
}

impl LivePolicy {
    /// # Errors
    /// The policy contradicts itself.
    pub(crate) fn new(policy: Policy, connect: SharedConnect) -> Result<Self, PolicyError> {
        Ok(Self {
            generation: AtomicU64::new(0),
            rules: RwLock::new(Arc::new(policy.rules(None)?)),
            connect,
            policy: Mutex::new(policy),
        })
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whose code runs now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the policy.
    ///
    /// # Errors
    /// It does not suit the target, or contradicts itself. Nothing has changed then.
    fn replace(&self, new: Policy, address: &str, knows: Knows) -> Result<(), PolicyError> {
        new.check_transport(address, knows)?;
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(what) = policy.differs_in_fixed(&new) {
            return Err(PolicyError::Fixed { what });
        }
        let rules = new.rules(Some(&self.rules()))?;
        // From here on nothing fails.
        rules.settle();
        let mut connect = new.connect.clone();
        connect.tls = self.connect.get().tls.clone();
        self.connect.set(connect);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        *policy = new;
        // After both: a thread that sees the number sees them.
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Whether a peer that is connected would be admitted now. `is_accepted`: it connected to this target, and not the reverse.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn readmits(&self, peer: &Peer, is_accepted: bool) -> Result<(), Refusal> {
        let connect = self.connect.get();
        let no = |why: String| Err(Refusal::new(Rejection::Revoked, why));
        let me = rustix::process::geteuid().as_raw();
        if let Some(uid) = peer.uid.filter(|&uid| !connect.admits_user(uid, me)) {
            return no(format!(
                "the target's policy no longer admits processes of user {uid}"
            ));
        }
        let Some(key) = peer.key else {
            return Ok(());
        };
        if connect.is_revoked(&key) {
            return no(format!(
                "the target's policy revoked the key {key}, by which this process connected"
            ));
        }
        #[cfg(feature = "tls")]
        if is_accepted {
            if let Some(certified) = &peer.certified {
                let admitted = connect.admits_certificate(&certified.chain);
                return admitted.map(drop).or_else(|why| {
                    no(format!(
                        "the target's policy no longer admits the certificate of `{}`: {why}",
                        certified.name
                    ))
                });
            }
            // Keys that were read once stay as they are if their files cannot be read now.
            let keys = TlsKeys::or_env(connect.tls.as_ref());
            if keys.is_ok_and(|keys| !connect.admits_key(&key, &keys)) {
                return no(format!(
                    "the target's policy no longer admits the key {key}, by which this process connected"
                ));
            }
        }
        #[cfg(not(feature = "tls"))]
        let _ = is_accepted;
        Ok(())
    }
}

impl fmt::Debug for LivePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LivePolicy")
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

/// Replaces the policy of a target while it serves, from any thread: see [`Target::policy`](crate::Target::policy).
#[derive(Clone)]
pub struct PolicyHandle {
    pub(crate) live: Arc<LivePolicy>,
    pub(crate) address: String,
    pub(crate) knows: Knows,
    /// Wakes the threads that serve.
    pub(crate) doorbell: Arc<EventFd>,
}

impl PolicyHandle {
    /// Replaces the policy. The target applies it within its next eight polls, which a target that serves begins at once, and before it
    /// sleeps:
    ///
    /// * What connects, and what is installed, is decided by the new policy.
    /// * A connection whose user, key or certificate the new policy does not admit is ended. What its source sent before, and was not run, is
    ///   [rejected](crate::Rejection::Revoked) with the reason, and connecting again is [refused](crate::ConnectError::Refused). So is
    ///   a certificate that has expired meanwhile.
    /// * An image whose signer, imports or kind the new policy does not accept, or that its [check](Policy::accept_if) refuses, is released, and its invocations are rejected with that
    ///   reason; the connection goes on.
    /// * Quotas hold at once, with what was counted so far. What is above a lower one stays until it is released.
    ///
    /// A daemon that reads its file again on SIGHUP:
    ///
    /// ```
    /// use ifunc_rt::{Policy, Target};
    /// use signal_hook::consts::SIGHUP;
    /// use signal_hook::iterator::Signals;
    ///
    /// # let path = std::env::temp_dir().join(format!("ifunc-policy-{}.toml", std::process::id()));
    /// # let file = path.clone();
    /// # let write = |text: &str| std::fs::write(&file, text);
    /// # write("[quotas]\nimages = 64\n")?;
    /// // SAFETY: the owner of the file decides whose code runs in this process.
    /// let read = move || unsafe { Policy::read(&path) };
    /// let target = Target::builder().policy(read()?).listen("loopback:store")?;
    /// let policy = target.policy();
    /// let serving = target.spawn(0u64)?;
    /// let mut signals = Signals::new([SIGHUP])?;
    /// # let (said, hear) = std::sync::mpsc::channel();
    /// std::thread::spawn(move || {
    ///     for _ in signals.forever() {
    ///         // The error of a file says which line is wrong. The policy is the old one then.
    ///         let problem = match read() {
    ///             Ok(new) => policy.replace(new).err().map(|error| error.to_string()),
    ///             Err(error) => Some(error.to_string()),
    ///         };
    ///         # said.send(problem.clone()).unwrap();
    ///         if let Some(problem) = problem {
    ///             eprintln!("{problem}");
    ///         }
    ///     }
    /// });
    /// # for (text, problem) in [
    /// #     ("[quotas]\nimages = 8\n", None),
    /// #     ("[quotas]\nimages = 'few'\n", Some("line 2: ")),
    /// #     ("[faults]\nstack-bytes = 1048576\n", Some("`stack-bytes` cannot change")),
    /// # ] {
    /// #     write(text)?;
    /// #     signal_hook::low_level::raise(SIGHUP)?;
    /// #     let said = hear.recv_timeout(std::time::Duration::from_secs(30))?;
    /// #     assert_eq!(said.is_some(), problem.is_some(), "{said:?}");
    /// #     assert!(said.is_none_or(|said| said.contains(problem.unwrap())));
    /// # }
    /// # std::fs::remove_file(&file)?;
    /// serving.stop()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// An invocation that runs is not interrupted. The ranges of [`connect_from`](Policy::connect_from) hold for later connections.
    ///
    /// # Errors
    /// Nothing changes if the policy contradicts itself or does not suit the address, or if it changes what holds for as long as the target
    /// serves: [`PolicyError::Fixed`].
    pub fn replace(&self, policy: Policy) -> Result<(), PolicyError> {
        self.live.replace(policy, &self.address, self.knows)?;
        tracing::info!(address = self.address, "the policy was replaced");
        self.doorbell.wake();
        Ok(())
    }
}

impl PolicyHandle {
    /// Lets no further source connect, or lets them again: for a target that is about to stop, and runs what was sent before. Sources that
    /// are connected stay. One that connects meanwhile tries again until its
    /// [`connect_timeout`](crate::SourceOptions::connect_timeout), as at a target that has as many connections as it may, so it finds the
    /// target that takes this one's place.
    pub fn close_to_new_sources(&self, yes: bool) {
        self.live.connect.0.is_closed.store(yes, Ordering::Relaxed);
    }
}

impl fmt::Debug for PolicyHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyHandle")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// What differs between two policies of that which a target cannot change while it serves.
    fn differs_in_fixed(&self, other: &Self) -> Option<&'static str> {
        let stated = |policy: &Self| {
            let limits = policy.quotas.limits();
            (limits.max_image, limits.max_payload, limits.max_answer)
        };
        let runners = |policy: &Self| format!("{:?}", policy.runners);
        let opens = |policy: &Self| policy.connect.has_other_users();
        [
            (self.level != other.level, "`level`"),
            (self.max_run_time != other.max_run_time, "`max-run-time`"),
            (self.stack != other.stack, "`stack-bytes`"),
            (runners(self) != runners(other), "`[runners]`"),
            (
                stated(self) != stated(other),
                "the `image-bytes`, `payload-bytes` and `answer-bytes` of each connection, which sources were told",
            ),
            // The socket is there for this user alone.
            (!opens(self) && opens(other), "that other users connect at all"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}
