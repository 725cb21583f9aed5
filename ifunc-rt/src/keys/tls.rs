//! The keys of the `tls` transport.

use std::collections::BTreeSet;
use std::ffi::OsStr;
#[cfg(feature = "tls")]
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "tls")]
use super::{Certificate, CertificateAuthority};
use super::{KeyError, PublicKey, SecretKey};

/// Names the file of this process's secret key for `tls`.
const KEY: &str = "IFUNC_TLS_KEY";
/// Names the files of the public keys of its peers, with `:` between them.
const PEERS: &str = "IFUNC_TLS_PEERS";
/// Names the file of this process's certificate.
#[cfg(feature = "tls")]
const CERTIFICATE: &str = "IFUNC_TLS_CERTIFICATE";
/// Names the file of the authority that certifies targets.
#[cfg(feature = "tls")]
const AUTHORITY: &str = "IFUNC_TLS_AUTHORITY";

/// The keys of a process for the `tls` transport, and for connecting by `ucx` and `ucx-put`: its own, by which it proves to its peers who
/// it is, and those of the peers.
///
/// A source connects to targets whose keys are among [`peers`](Self::peer), and to no others. A target admits sources whose keys are
/// among them, or in its [`Policy`](crate::Policy::connect_key). A process that is given none takes them
/// [from the environment](Self::from_env).
///
/// Certificates say the same of many processes by one file. A source that trusts an [`authority`](Self::authority) connects to targets
/// by their names, and a process that has a [`certificate`](Self::certificate) proves by it who it is. A target admits certificates by
/// its [`Policy`](crate::Policy::connect_certificate). The two sides are independent: a source may have a raw key and trust an authority,
/// or the reverse.
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
    #[cfg(feature = "tls")]
    certificate: Option<Certificate>,
    #[cfg(feature = "tls")]
    authority: Option<CertificateAuthority>,
    /// The name of the targets, in place of the host of each address.
    #[cfg(feature = "tls")]
    target_name: Option<Arc<str>>,
}

impl TlsKeys {
    /// The keys of a process whose own key is `key`, and that knows no peers yet.
    pub fn new(key: SecretKey) -> Self {
        Self {
            key: Arc::new(key),
            peers: Arc::default(),
            #[cfg(feature = "tls")]
            certificate: None,
            #[cfg(feature = "tls")]
            authority: None,
            #[cfg(feature = "tls")]
            target_name: None,
        }
    }

    /// Adds the key of a peer.
    pub fn peer(mut self, key: PublicKey) -> Self {
        Arc::make_mut(&mut self.peers).insert(key);
        self
    }

    /// Proves by this certificate, which is of the process's own key, who the process is: as a source, and as a target to the sources that
    /// ask for one.
    ///
    /// ```no_run
    /// use ifunc_rt::keys::{Certificate, CertificateAuthority, SecretKey, TlsKeys};
    /// use ifunc_rt::{Source, SourceOptions};
    ///
    /// let keys = TlsKeys::new(SecretKey::read("analyst.key")?)
    ///     .certificate(Certificate::read("analyst.pem")?)?
    ///     .authority(CertificateAuthority::read("cluster.pem")?);
    /// // The certificate of what listens there is of the name `store.example`.
    /// let source = Source::connect_with("tls://store.example:7000", SourceOptions::default().tls(Some(keys)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`KeyError::OtherKey`]: it is of another key.
    #[cfg(feature = "tls")]
    pub fn certificate(mut self, certificate: Certificate) -> Result<Self, KeyError> {
        let own = self.key.public();
        if certificate.key() != own {
            let certified = certificate.key();
            return Err(KeyError::OtherKey { certified, own });
        }
        self.certificate = Some(certificate);
        Ok(self)
    }

    /// As a source, connects to targets that this authority certifies, instead of those whose keys are known. The certificate must be of
    /// the host of the address, or of the [`target_name`](Self::target_name).
    #[cfg(feature = "tls")]
    pub fn authority(mut self, authority: CertificateAuthority) -> Self {
        self.authority = Some(authority);
        self
    }

    /// As a source, expects certificates of this name, whatever the host of the address is: a DNS name, an IP address, or a URI such as
    /// `spiffe://cluster/store`.
    #[cfg(feature = "tls")]
    pub fn target_name(mut self, name: &str) -> Self {
        self.target_name = Some(name.into());
        self
    }

    /// What the environment says: `IFUNC_TLS_KEY` is the file of the process's secret key, and `IFUNC_TLS_PEERS` names the files of
    /// its peers' public keys, with `:` between them. `IFUNC_TLS_CERTIFICATE` is the file of its [certificate](Self::certificate), and
    /// `IFUNC_TLS_AUTHORITY` that of the [authority](Self::authority) of its targets. `None`: `IFUNC_TLS_KEY` is not set.
    ///
    /// # Errors
    /// A file cannot be read or does not hold what it must, or other users may read the secret key.
    pub fn from_env() -> Result<Option<Self>, KeyError> {
        let key = std::env::var_os(KEY).filter(|key| !key.is_empty());
        let peers = std::env::var_os(PEERS).unwrap_or_default();
        let Some(key) = key else {
            return Ok(None);
        };
        let keys = Self::read(Path::new(&key), &peers)?;
        #[cfg(feature = "tls")]
        let keys = keys.read_certificates([CERTIFICATE, AUTHORITY].map(std::env::var_os))?;
        Ok(Some(keys))
    }

    /// Adds the certificates in the files of a process and of an authority.
    #[cfg(feature = "tls")]
    fn read_certificates(self, [own, authority]: [Option<OsString>; 2]) -> Result<Self, KeyError> {
        let mut keys = self;
        if let Some(path) = own.filter(|path| !path.is_empty()) {
            keys = keys.certificate(Certificate::read(path)?)?;
        }
        if let Some(path) = authority.filter(|path| !path.is_empty()) {
            keys = keys.authority(CertificateAuthority::read(path)?);
        }
        Ok(keys)
    }

    fn read(key: &Path, peers: &OsStr) -> Result<Self, KeyError> {
        let mut keys = Self::new(SecretKey::read(key)?);
        for path in std::env::split_paths(peers).filter(|path| !path.as_os_str().is_empty()) {
            keys = keys.peer(PublicKey::read(path)?.0);
        }
        Ok(keys)
    }

    /// These, or what the [environment](Self::from_env) says, or none.
    ///
    /// # Errors
    /// The problem: the environment names what cannot be read.
    #[cfg(feature = "ucx")]
    pub(crate) fn given(this: Option<&Self>) -> Result<Option<Self>, String> {
        match this {
            Some(keys) => Ok(Some(keys.clone())),
            None => {
                Self::from_env().map_err(|error| format!("the files that {KEY} and {PEERS} name: {error}"))
            }
        }
    }

    /// Whether these keys are given, or the environment names some.
    pub(crate) fn are_given(this: Option<&Self>) -> bool {
        this.is_some() || std::env::var_os(KEY).is_some_and(|key| !key.is_empty())
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
            Err(error) => Err(format!(
                "the files that {KEY}, {PEERS}, {CERTIFICATE} and {AUTHORITY} name: {error}"
            )),
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

    /// The certificate of this process.
    #[cfg(feature = "tls")]
    pub(crate) fn own_certificate(&self) -> Option<&Certificate> {
        self.certificate.as_ref()
    }

    /// The authority of the targets, and their name if it is not the host of their address.
    #[cfg(feature = "tls")]
    pub(crate) fn targets(&self) -> Option<(&CertificateAuthority, Option<&str>)> {
        Some((self.authority.as_ref()?, self.target_name.as_deref()))
    }

    /// Whether no peer is known.
    #[cfg(feature = "tls")]
    pub(crate) fn has_no_peers(&self) -> bool {
        self.peers.is_empty()
    }
}

impl PartialEq for TlsKeys {
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.key.public() == other.key.public() && self.peers == other.peers;
        #[cfg(feature = "tls")]
        let is_same = is_same
            && (&self.certificate, &self.authority, &self.target_name)
                == (&other.certificate, &other.authority, &other.target_name);
        is_same
    }
}

impl Eq for TlsKeys {}

impl fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("TlsKeys");
        shown.field("key", &self.key.public()).field("peers", &self.peers);
        #[cfg(feature = "tls")]
        shown
            .field("certificate", &self.certificate)
            .field("authority", &self.authority)
            .field("target_name", &self.target_name);
        shown.finish()
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
