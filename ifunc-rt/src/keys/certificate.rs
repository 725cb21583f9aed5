//! Certificates (X.509) of the `tls` transport.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
};
use webpki::EndEntityCert;

use super::file::read;
use super::{KeyError, PublicKey};

/// How the `SubjectPublicKeyInfo` of an ed25519 key begins (RFC 8410); the 32 bytes of the key follow.
const SPKI: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// The longest name by which a peer is known.
const LONGEST_NAME: usize = 255;
/// Most certificates that a peer may send, and that a file of a process's own may have.
pub(super) const MAX_CHAIN: usize = 16;

/// The `SubjectPublicKeyInfo` of a key.
pub(crate) fn spki_of(key: &PublicKey) -> Vec<u8> {
    [&SPKI[..], key.as_bytes()].concat()
}

/// The key of a `SubjectPublicKeyInfo`, if it is one of ed25519.
pub(crate) fn key_of(spki: &[u8]) -> Option<PublicKey> {
    let key = spki.strip_prefix(&SPKI)?.try_into().ok()?;
    PublicKey::from_bytes(key).ok()
}

/// The key of a certificate, if it is one of ed25519.
pub(crate) fn key_of_certificate(certificate: &CertificateDer<'_>) -> Option<PublicKey> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let spki: SubjectPublicKeyInfoDer<'_> = parsed.subject_public_key_info();
    key_of(&spki)
}

/// Seed of a PKCS#8 key of ed25519 in PEM, as `openssl genpkey -algorithm ed25519` writes it. `None`: the text is no PEM.
pub(super) fn seed_of_pem(text: &str) -> Option<Result<[u8; 32], KeyError>> {
    if !text.contains("-----BEGIN ") {
        return None;
    }
    let why = || {
        KeyError::Form("it is no ed25519 key in PEM; help: `cargo ifunc keygen`, or `openssl genpkey -algorithm ed25519`".into())
    };
    let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()).map_err(|_| why());
    Some(key.and_then(|key| match key.secret_pkcs8_der() {
        [
            0x30,
            _,
            0x02,
            0x01,
            0 | 1,
            0x30,
            0x05,
            0x06,
            0x03,
            0x2b,
            0x65,
            0x70,
            0x04,
            0x22,
            0x04,
            0x20,
            rest @ ..,
        ] => rest.first_chunk().copied().ok_or_else(why),
        _ => Err(why()),
    }))
}

/// The certificate of a process, and those that lead from it to its authority. It is of the process's own ed25519 key.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    chain: Arc<[CertificateDer<'static>]>,
    key: PublicKey,
}

impl Certificate {
    /// Reads a file in PEM: the certificate first, then those that lead to the authority, without the authority's own.
    ///
    /// # Errors
    /// [`KeyError::File`]: the file cannot be read. [`KeyError::Certificate`]: it holds no such certificates, or the first one is not of an
    /// ed25519 key.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        Self::of_pem(&read(path)?).map_err(|why| KeyError::certificate(path, why))
    }

    fn of_pem(text: &str) -> Result<Self, String> {
        let Pem { certificates, .. } = Pem::parse(text)?;
        let Some(first) = certificates.first() else {
            return Err("it holds no certificate".into());
        };
        if certificates.len() > MAX_CHAIN {
            return Err(format!("it holds more than {MAX_CHAIN} certificates"));
        }
        let key = key_of_certificate(first).ok_or(
            "its first certificate is not of an ed25519 key; help: make one for the key of this process (`openssl req -key FILE.key`, or `cargo ifunc keygen --ca FILE`)",
        )?;
        Ok(Self {
            chain: certificates.into(),
            key,
        })
    }

    /// The key that it is of.
    #[must_use]
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// The names that it has: DNS names and URIs.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        names_of(&self.chain[0])
    }

    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("key", &self.key)
            .field("names", &self.names())
            .finish_non_exhaustive()
    }
}

/// The names of a certificate by which a peer can be known: URIs and DNS names, without what cannot be shown.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let is_shown =
        |name: &&str| name.len() <= LONGEST_NAME && name.bytes().all(|byte| byte.is_ascii_graphic());
    let names = parsed.valid_uri_names().chain(parsed.valid_dns_names());
    names.filter(is_shown).take(MAX_CHAIN).map(Into::into).collect()
}

/// Whether a certificate is of this name: a URI as it is written, a DNS name or an IP address by the rules of TLS, in which a
/// certificate's wildcard stands for one label.
pub(crate) fn has_name(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else {
        return false;
    };
    if is_uri(name) {
        return parsed.valid_uri_names().any(|uri| uri == name);
    }
    ServerName::try_from(name).is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok())
}

/// Whether a certificate can be of this name.
pub(crate) fn is_name(name: &str) -> bool {
    let is_shown = name.len() <= LONGEST_NAME && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_shown && (is_uri(name) || ServerName::try_from(name).is_ok())
}

fn is_uri(name: &str) -> bool {
    name.contains("://") || name.starts_with("urn:")
}

/// What is in a file.
#[derive(Default)]
pub(super) struct Pem {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl Pem {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes()) {
            match section {
                Ok((SectionKind::Certificate, der)) => found.certificates.push(der.into()),
                Ok((SectionKind::Crl, der)) => found.revoked.push(der.into()),
                Ok(_) => {}
                Err(error) => return Err(format!("it is no PEM: {error}")),
            }
        }
        Ok(found)
    }
}
