//! Who the two sides are: TLS with raw public keys of ed25519, and nothing else.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureAlgorithm, SignatureScheme,
};

use crate::keys::{PublicKey, TlsKeys, is_signed};

/// What both sides say that they speak: a key that another protocol uses as well proves nothing here.
pub(super) const PROTOCOL: &[u8] = b"ifunc";

/// How the `SubjectPublicKeyInfo` of an ed25519 key begins (RFC 8410); the 32 bytes of the key follow.
const SPKI: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

fn spki_of(key: &PublicKey) -> Vec<u8> {
    [&SPKI[..], key.as_bytes()].concat()
}

/// The key in what a peer sent as its certificate.
pub(super) fn key_of(spki: &[u8]) -> Option<PublicKey> {
    let key = spki.strip_prefix(&SPKI)?.try_into().ok()?;
    PublicKey::from_bytes(key).ok()
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || Arc::new(ring::default_provider());
    Arc::clone(PROVIDER.get_or_init(make))
}

/// This side's key, for rustls.
struct Own(TlsKeys);

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own({})", self.0.key().public())
    }
}

impl SigningKey for Own {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let is_offered = offered.contains(&SignatureScheme::ED25519);
        is_offered.then(|| Box::new(Self(self.0.clone())) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(spki_of(&self.0.key().public()).into())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for Own {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.key().sign_message(message).to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

fn certified(keys: &TlsKeys) -> Arc<CertifiedKey> {
    let spki = CertificateDer::from(spki_of(&keys.key().public()));
    Arc::new(CertifiedKey::new(vec![spki], Arc::new(Own(keys.clone()))))
}

/// What a target answers handshakes by. It admits every key here, and its policy decides afterwards: the source then learns why it
/// may not connect.
pub(super) fn server(keys: &TlsKeys) -> Result<Arc<ServerConfig>, Error> {
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(keys)));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(AnySource))
        .with_cert_resolver(resolver);
    // Each connection proves its key anew: it may have been revoked.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// What a source connects by, and where the key of what answers is kept if it is of no target that the source knows.
pub(super) fn client(keys: &TlsKeys) -> Result<(Arc<ClientConfig>, Arc<OnceLock<PublicKey>>), Error> {
    let unknown = Arc::new(OnceLock::new());
    let targets = KnownTargets {
        keys: keys.clone(),
        unknown: Arc::clone(&unknown),
    };
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(keys)));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(targets))
        .with_client_cert_resolver(resolver);
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok((Arc::new(config), unknown))
}

/// The name that rustls wants of a server. It is not sent, and the key decides.
pub(super) fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into())
}

fn verify(
    message: &[u8],
    spki: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = key_of(spki).ok_or(CertificateError::BadEncoding)?;
    if signed.scheme == SignatureScheme::ED25519 && is_signed(message, &key, signed.signature()) {
        return Ok(HandshakeSignatureValid::assertion());
    }
    Err(CertificateError::BadSignature.into())
}

/// The methods in which the verifiers of both sides are the same: the peer's key is a raw one of ed25519, and TLS 1.2 is not spoken.
macro_rules! raw_ed25519_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("TLS 1.2".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            spki: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify(message, spki, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

/// Any source that proves to hold an ed25519 key.
#[derive(Debug)]
struct AnySource;

impl ClientCertVerifier for AnySource {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        spki: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match key_of(spki) {
            Some(_) if others.is_empty() => Ok(ClientCertVerified::assertion()),
            _ => Err(CertificateError::BadEncoding.into()),
        }
    }

    raw_ed25519_keys!();
}

/// The targets that a source knows.
#[derive(Debug)]
struct KnownTargets {
    keys: TlsKeys,
    unknown: Arc<OnceLock<PublicKey>>,
}

impl ServerCertVerifier for KnownTargets {
    fn verify_server_cert(
        &self,
        spki: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match key_of(spki) {
            Some(key) if others.is_empty() && self.keys.has_peer(&key) => Ok(ServerCertVerified::assertion()),
            Some(key) => {
                let _ = self.unknown.set(key);
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            None => Err(CertificateError::BadEncoding.into()),
        }
    }

    raw_ed25519_keys!();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::keys::SecretKey;

    #[test]
    fn a_key_is_written_as_rfc_8410_says() {
        let key = SecretKey::from_seed([3; 32], "").public();
        let spki = spki_of(&key);
        assert_eq!(key_of(&spki), Some(key));
        let provided = rustls::sign::public_key_to_spki(&rustls::pki_types::alg_id::ED25519, key.as_bytes());
        assert_eq!(provided.as_ref(), &spki[..]);
        assert_eq!(key_of(&spki[..43]), None);
        assert_eq!(key_of(&[&spki[..], &[0]].concat()), None);
        // The neutral element, with which everything verifies.
        let neutral = [&SPKI[..], &[1], &[0; 31]].concat();
        assert_eq!(key_of(&neutral), None);
    }
}
