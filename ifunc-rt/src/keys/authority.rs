//! Authorities that certify peers, and why a certificate is not accepted.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime,
};
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder,
    anchor_from_trusted_cert,
};

use super::KeyError;
use super::certificate::{MAX_CHAIN, Pem, has_name, names_of};
use super::file::read;

/// The signatures that certificates may have: an authority may have another kind of key than the processes.
const ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = webpki::ALL_VERIFICATION_ALGS;

/// Why the certificate of a peer is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Its time is over.
    #[error("it expired {} ago; help: renew it, or set the clocks", rough(.since))]
    Expired {
        /// How long ago.
        since: Duration,
    },
    /// Its time has not begun.
    #[error("it is valid in {}, and not before; help: compare the clocks of both hosts", rough(.until))]
    NotYetValid {
        /// In how much time it is valid.
        until: Duration,
    },
    /// No authority that this side trusts has issued it.
    #[error(
        "no authority that is trusted here has issued it; help: name the file of its authority's certificate, or use one of another authority"
    )]
    UnknownIssuer,
    /// The authority's list of revoked certificates has it, or the policy revoked its key.
    #[error("it was revoked; help: make another one")]
    Revoked,
    /// It is of another name.
    #[error("it is of {}, which is not the name that is expected here", listed(.names))]
    Name {
        /// The names that it has.
        names: Vec<String>,
    },
    /// It may not be used for this.
    #[error(
        "its extended key usage excludes this side of a connection; help: `serverAuth` for targets, `clientAuth` for sources, both for nodes"
    )]
    Purpose,
    /// The peer has none.
    #[error("it has none; help: `TlsKeys::certificate`, or name its file in IFUNC_TLS_CERTIFICATE")]
    Missing,
    /// It, or one of those that lead to the authority, cannot be used.
    #[error("it cannot be used: {0}")]
    Invalid(String),
}

/// A time as people say it.
fn rough(time: &Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "no name".into(),
        names => {
            let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            quoted.join(", ")
        }
    }
}

impl CertificateError {
    fn of(error: webpki::Error) -> Self {
        let between = |later: UnixTime, earlier: UnixTime| {
            Duration::from_secs(later.as_secs().saturating_sub(earlier.as_secs()))
        };
        match error {
            webpki::Error::CertExpired { time, not_after } => Self::Expired {
                since: between(time, not_after),
            },
            webpki::Error::CertNotValidYet { time, not_before } => Self::NotYetValid {
                until: between(not_before, time),
            },
            // Without the signature of the authority, another one has its name.
            webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => Self::UnknownIssuer,
            webpki::Error::CertRevoked => Self::Revoked,
            webpki::Error::RequiredEkuNotFoundContext(_) => Self::Purpose,
            webpki::Error::UnknownRevocationStatus => Self::Invalid(
                "its authority has lists of revoked certificates here, and none is of the issuer of this one"
                    .into(),
            ),
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// An authority whose certificates are trusted, and those of them that it has revoked.
#[derive(Clone)]
pub struct CertificateAuthority(Arc<Trusted>);

struct Trusted {
    certificates: Vec<CertificateDer<'static>>,
    lists: Vec<CertificateRevocationListDer<'static>>,
    /// The certificates, and the lists, parsed.
    anchors: Vec<TrustAnchor<'static>>,
    revoked: Vec<CertRevocationList<'static>>,
}

/// The side of a connection that a certificate is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertifiedSide {
    Source,
    Target,
}

impl CertificateAuthority {
    /// Reads a file in PEM: the certificates of the authority, and its lists of revoked certificates (`X509 CRL`), if it has some.
    ///
    /// With a list, each certificate that leads to the authority must be of an issuer of which there is one. A list whose time is over still
    /// counts.
    ///
    /// # Errors
    /// [`KeyError::File`]: the file cannot be read. [`KeyError::Certificate`]: it holds no certificate, or one or a list that cannot be used.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        Self::of_pem(&read(path)?).map_err(|why| KeyError::certificate(path, why))
    }

    fn of_pem(text: &str) -> Result<Self, String> {
        let Pem {
            certificates,
            revoked,
        } = Pem::parse(text)?;
        Self::new(certificates, revoked)
    }

    /// Adds the lists of revoked certificates of another file in PEM.
    ///
    /// # Errors
    /// As [`read`](Self::read); the file holds no list.
    pub fn revoked_by(self, path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        let more = Pem::parse(&read(path)?).and_then(|Pem { revoked, .. }| match revoked[..] {
            [] => Err("it holds no list of revoked certificates (`X509 CRL`)".into()),
            _ => {
                let Trusted {
                    certificates, lists, ..
                } = &*self.0;
                Self::new(certificates.clone(), [&lists[..], &revoked].concat())
            }
        });
        more.map_err(|why| KeyError::certificate(path, why))
    }

    fn new(
        certificates: Vec<CertificateDer<'static>>,
        lists: Vec<CertificateRevocationListDer<'static>>,
    ) -> Result<Self, String> {
        if certificates.is_empty() {
            return Err("it holds no certificate".into());
        }
        let anchors = certificates.iter().map(|certificate| {
            let anchor = anchor_from_trusted_cert(certificate);
            let anchor =
                anchor.map_err(|error| format!("it holds a certificate that cannot be used: {error}"))?;
            Ok(anchor.to_owned())
        });
        let anchors = anchors.collect::<Result<Vec<_>, String>>()?;
        let revoked = lists.iter().map(|list| {
            let list = OwnedCertRevocationList::from_der(list);
            let list = list.map_err(|error| {
                format!("it holds a list of revoked certificates that cannot be used: {error}")
            })?;
            Ok(list.into())
        });
        let revoked = revoked.collect::<Result<Vec<_>, String>>()?;
        Ok(Self(Arc::new(Trusted {
            certificates,
            lists,
            anchors,
            revoked,
        })))
    }

    /// Its own certificates.
    #[cfg(test)]
    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0.certificates
    }

    /// Whether it vouches at this time for the first of these certificates, by the others.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check(
        &self,
        chain: &[CertificateDer<'_>],
        side: CertifiedSide,
    ) -> Result<(), CertificateError> {
        let [leaf, others @ ..] = chain else {
            return Err(CertificateError::Missing);
        };
        if chain.len() > MAX_CHAIN {
            return Err(CertificateError::Invalid(format!(
                "it comes with more than {MAX_CHAIN} others"
            )));
        }
        let Trusted { anchors, revoked, .. } = &*self.0;
        let revoked: Vec<&CertRevocationList<'_>> = revoked.iter().collect();
        // `None`: there are no lists.
        let revocation = RevocationOptionsBuilder::new(&revoked).ok();
        let usage = match side {
            CertifiedSide::Source => KeyUsage::client_auth(),
            CertifiedSide::Target => KeyUsage::server_auth(),
        };
        let leaf = EndEntityCert::try_from(leaf).map_err(CertificateError::of)?;
        let verified = leaf.verify_for_usage(
            ALGORITHMS,
            anchors,
            others,
            UnixTime::now(),
            usage,
            revocation.map(RevocationOptionsBuilder::build),
            None,
        );
        verified.map(drop).map_err(CertificateError::of)
    }

    /// As [`check`](Self::check), for a certificate that must be of one of these names. Returns that name.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn check_named<'n>(
        &self,
        chain: &[CertificateDer<'_>],
        side: CertifiedSide,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<&'n str, CertificateError> {
        self.check(chain, side)?;
        let mut names = names.into_iter();
        let found = names.find(|name| has_name(&chain[0], name));
        found.ok_or_else(|| CertificateError::Name {
            names: names_of(&chain[0]),
        })
    }
}

impl PartialEq for CertificateAuthority {
    fn eq(&self, other: &Self) -> bool {
        (&self.0.certificates, &self.0.lists) == (&other.0.certificates, &other.0.lists)
    }
}

impl Eq for CertificateAuthority {}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("certificates", &self.0.certificates.len())
            .field("revocation_lists", &self.0.lists.len())
            .finish_non_exhaustive()
    }
}
