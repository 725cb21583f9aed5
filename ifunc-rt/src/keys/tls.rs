//! The keys of the `tls` transport.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::{KeyError, PublicKey, SecretKey};

/// Names the file of this process's secret key for `tls`.
const KEY: &str = "IFUNC_TLS_KEY";
/// Names the files of the public keys of its peers, with `:` between them.
const PEERS: &str = "IFUNC_TLS_PEERS";

/// The keys of a process for the `tls` transport: its own, by which it proves to its peers who it is, and those of the peers.
///
/// A source connects to targets whose keys are among [`peers`](Self::peer), and to no others. A target admits sources whose keys are
/// among them, or in its [`Policy`](crate::Policy::connect_key). A process that is given none takes them
/// [from the environment](Self::from_env).
///
/// A key for `tls` is a file that `cargo ifunc keygen` wrote. Use another key than those that sign images: this one lies on the
/// machine that runs the process.
///
/// ```no_run
/// use ifunc_rt::keys::{PublicKey, SecretKey, TlsKeys};
/// use ifunc_rt::{Source, SourceOptions};
///
/// let (target, _) = PublicKey::read("store.pub")?;
/// let keys = TlsKeys::new(SecretKey::read("analyst.key")?).peer(target);
/// let source = Source::connect_with("tls://store.example:7000", SourceOptions::default().tls(Some(keys)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct TlsKeys {
    key: Arc<SecretKey>,
    peers: Arc<BTreeSet<PublicKey>>,
}

impl TlsKeys {
    /// The keys of a process whose own key is `key`, and that knows no peers yet.
    pub fn new(key: SecretKey) -> Self {
        Self {
            key: Arc::new(key),
            peers: Arc::default(),
        }
    }

    /// Adds the key of a peer.
    pub fn peer(mut self, key: PublicKey) -> Self {
        Arc::make_mut(&mut self.peers).insert(key);
        self
    }

    /// What the environment says: `IFUNC_TLS_KEY` is the file of the process's secret key, and `IFUNC_TLS_PEERS` names the files of
    /// its peers' public keys, with `:` between them. `None`: `IFUNC_TLS_KEY` is not set.
    ///
    /// # Errors
    /// A file cannot be read or holds no such key, or other users may read the secret key.
    pub fn from_env() -> Result<Option<Self>, KeyError> {
        let key = std::env::var_os(KEY).filter(|key| !key.is_empty());
        let peers = std::env::var_os(PEERS).unwrap_or_default();
        key.map(|key| Self::read(Path::new(&key), &peers)).transpose()
    }

    fn read(key: &Path, peers: &OsStr) -> Result<Self, KeyError> {
        let mut keys = Self::new(SecretKey::read(key)?);
        for path in std::env::split_paths(peers).filter(|path| !path.as_os_str().is_empty()) {
            keys = keys.peer(PublicKey::read(path)?.0);
        }
        Ok(keys)
    }

    /// These, or what the [environment](Self::from_env) says.
    ///
    /// # Errors
    /// The problem, and what to do: there are none.
    #[cfg(feature = "tls")]
    pub(crate) fn or_env(this: Option<&Self>) -> Result<Self, String> {
        if let Some(keys) = this {
            return Ok(keys.clone());
        }
        // Both sides of a test are one process.
        #[cfg(test)]
        if std::env::var_os(KEY).is_none() {
            return Ok(Self::of_tests());
        }
        match Self::from_env() {
            Ok(Some(keys)) => Ok(keys),
            Ok(None) => Err(format!(
                "this process has no key for `tls://`; help: make one by `cargo ifunc keygen`, and name its file in {KEY}, or set `SourceOptions::tls` of a source, `TargetBuilder::tls` of a target"
            )),
            Err(error) => Err(format!("the keys that {KEY} and {PEERS} name: {error}")),
        }
    }

    /// The keys of tests, in which both sides have the same.
    #[cfg(all(test, feature = "tls"))]
    pub(crate) fn of_tests() -> Self {
        let key = SecretKey::from_seed([42; 32], "of the tests");
        let public = key.public();
        Self::new(key).peer(public)
    }

    /// The process's own key.
    #[must_use]
    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Whether this is the key of a peer.
    #[must_use]
    pub fn has_peer(&self, key: &PublicKey) -> bool {
        self.peers.contains(key)
    }

    /// Whether no peer is known.
    #[cfg(feature = "tls")]
    pub(crate) fn has_no_peers(&self) -> bool {
        self.peers.is_empty()
    }
}

impl PartialEq for TlsKeys {
    fn eq(&self, other: &Self) -> bool {
        self.key.public() == other.key.public() && self.peers == other.peers
    }
}

impl Eq for TlsKeys {}

impl fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKeys")
            .field("key", &self.key.public())
            .field("peers", &self.peers)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_the_files_that_the_environment_names() {
        let folder = std::env::temp_dir().join(format!("ifunc-tls-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [own, a, b] = [1, 2, 3].map(|seed| SecretKey::from_seed([seed; 32], "test"));
        let key = folder.join("own.key");
        let _ = std::fs::remove_file(&key);
        own.write_new(&key).unwrap();
        let [a_file, b_file] = ["a.pub", "b.pub"].map(|name| folder.join(name));
        a.public().write(&a_file, "a").unwrap();
        b.public().write(&b_file, "b").unwrap();
        let both = std::env::join_paths([&a_file, &b_file]).unwrap();
        let keys = TlsKeys::read(&key, &both).unwrap();
        assert_eq!(keys.key().public(), own.public());
        assert!(keys.has_peer(&a.public()) && keys.has_peer(&b.public()) && !keys.has_peer(&own.public()));
        let expected = TlsKeys::new(own).peer(b.public()).peer(a.public());
        assert_eq!(keys, expected);
        assert_ne!(keys, TlsKeys::read(&key, a_file.as_os_str()).unwrap());
        let error = TlsKeys::read(&a_file, OsStr::new("")).unwrap_err().to_string();
        assert!(error.contains("ifunc-secret-key"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
