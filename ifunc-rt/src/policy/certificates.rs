//! Which certificates connect.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

use super::connect::Connect;
use super::{Policy, PolicyError};
use crate::keys::certificate::{is_name, key_of_certificate, names_of};
use crate::keys::{CertificateAuthority, CertificateError, CertifiedSide};

/// An authority, and the names of those of its certificates by which peers connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateRule {
    authority: CertificateAuthority,
    /// `None`: every name.
    names: Option<Vec<Arc<str>>>,
}

impl CertificateRule {
    /// The name by which a peer with this certificate is known.
    ///
    /// # Errors
    /// Why it does not connect by this rule.
    fn admits(&self, chain: &[CertificateDer<'_>]) -> Result<Arc<str>, CertificateError> {
        let side = CertifiedSide::Source;
        let Some(names) = &self.names else {
            self.authority.check(chain, side)?;
            let names = names_of(&chain[0]);
            let Some(name) = names.first() else {
                return Err(CertificateError::Name { names });
            };
            return Ok(name.as_str().into());
        };
        let names = names.iter().map(|name| &**name);
        self.authority.check_named(chain, side, names).map(Into::into)
    }
}

impl Policy {
    /// Lets peers connect over `tls`, and over `ucx` to a target that has keys, by certificates that this authority issued for one of these names, beside the peers of
    /// [`connect_key`](Self::connect_key): DNS names, IP addresses, and URIs such as `spiffe://cluster/ada`. A certificate's wildcard
    /// stands for one label, as in TLS; a URI is compared as it is written. The peer is known by the name:
    /// [`SourceInfo::name`](crate::SourceInfo::name).
    ///
    /// # Errors
    /// [`PolicyError::Name`]: no certificate can be of such a name.
    pub fn connect_certificate(
        mut self,
        authority: CertificateAuthority,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, PolicyError> {
        let names = names.into_iter().map(|name| match name.as_ref() {
            name if is_name(name) => Ok(name.into()),
            name => Err(PolicyError::Name { name: name.into() }),
        });
        let names = Some(names.collect::<Result<_, _>>()?);
        self.connect
            .certificates
            .push(CertificateRule { authority, names });
        Ok(self)
    }

    /// As [`connect_certificate`](Self::connect_certificate), for all names: whatever this authority certifies connects. A peer is known
    /// by the first URI of its certificate, or else by its first DNS name.
    pub fn connect_any_certificate(mut self, authority: CertificateAuthority) -> Self {
        let names = None;
        self.connect
            .certificates
            .push(CertificateRule { authority, names });
        self
    }
}

impl Connect {
    /// Whether certificates connect.
    pub(crate) fn has_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// The name by which a peer with this certificate, and those that lead from it to its authority, is known.
    ///
    /// # Errors
    /// Why it does not connect.
    pub(crate) fn admits_certificate(
        &self,
        chain: &[CertificateDer<'_>],
    ) -> Result<Arc<str>, CertificateError> {
        let key = chain.first().and_then(key_of_certificate);
        if key.is_some_and(|key| self.is_revoked(&key)) {
            return Err(CertificateError::Revoked);
        }
        // What the authority says that issued it.
        let mut why = CertificateError::UnknownIssuer;
        for rule in &self.certificates {
            match rule.admits(chain) {
                Ok(name) => return Ok(name),
                Err(CertificateError::UnknownIssuer) => {}
                Err(error) => why = error,
            }
        }
        Err(why)
    }
}
