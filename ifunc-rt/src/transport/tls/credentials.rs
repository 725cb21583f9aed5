//! Who the two sides are: TLS with raw public keys of ed25519, or certificates of such keys.
//!
//! Each side proves itself by what it has, and asks for what it can check: a source that trusts an authority asks for a certificate, one
//! that knows keys for a raw key. The source's first message says both, and the target answers by the configuration for that.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, CertificateType, ClientHello, NoServerSessionStorage,
    ResolvesServerCert,
};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError as Tls, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureAlgorithm, SignatureScheme,
};

use crate::keys::certificate::{key_of, key_of_certificate, spki_of};
use crate::keys::{CertificateAuthority, CertificateError, CertifiedSide, PublicKey, TlsKeys, is_signed};

/// What both sides say that they speak: a key that another protocol uses as well proves nothing here.
pub(super) const PROTOCOL: &[u8] = b"ifunc";

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || Arc::new(ring::default_provider());
    Arc::clone(PROVIDER.get_or_init(make))
}

/// What a peer has proved to hold: a key, and, if it sent certificates, one of this key and those that lead from it to an authority.
pub(super) struct Proof {
    pub(super) key: PublicKey,
    pub(super) chain: Option<Vec<CertificateDer<'static>>>,
}

impl Proof {
    /// Of what the peer sent in place of certificates. The handshake has checked that it holds the key.
    pub(super) fn of(sent: &[CertificateDer<'_>]) -> Option<Self> {
        let first = sent.first()?;
        if let Some(key) = key_of(first) {
            return Some(Self { key, chain: None });
        }
        let key = key_of_certificate(first)?;
        let chain = sent.iter().map(|certificate| certificate.clone().into_owned());
        Some(Self {
            key,
            chain: Some(chain.collect()),
        })
    }
}

/// How a side proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    RawKey,
    Certificate,
}

impl Kind {
    /// Of what a source states that it accepts or sends. A source that states nothing means certificates.
    fn of(stated: Option<&[CertificateType]>) -> Self {
        match stated {
            Some(kinds) if kinds.contains(&CertificateType::RawPublicKey) => Self::RawKey,
            _ => Self::Certificate,
        }
    }

    /// The key in what a peer sent.
    fn key(self, sent: &CertificateDer<'_>) -> Option<PublicKey> {
        match self {
            Self::RawKey => key_of(sent),
            Self::Certificate => key_of_certificate(sent),
        }
    }

    fn verify(
        self,
        message: &[u8],
        sent: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = self.key(sent).ok_or(Tls::BadEncoding)?;
        if signed.scheme == SignatureScheme::ED25519 && is_signed(message, &key, signed.signature()) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        Err(Tls::BadSignature.into())
    }
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

/// The raw key.
fn raw(keys: &TlsKeys) -> Arc<CertifiedKey> {
    let spki = CertificateDer::from(spki_of(&keys.key().public()));
    Arc::new(CertifiedKey::new(vec![spki], Arc::new(Own(keys.clone()))))
}

/// The certificate, if there is one.
fn certificate(keys: &TlsKeys) -> Option<Arc<SingleCertAndKey>> {
    let chain = keys.own_certificate()?.chain().to_vec();
    let certified = CertifiedKey::new(chain, Arc::new(Own(keys.clone())));
    Some(Arc::new(SingleCertAndKey::from(certified)))
}

/// What a target answers handshakes by.
#[derive(Debug)]
pub(super) struct Server {
    /// For sources that prove themselves by a raw key, and by a certificate.
    raw: [Arc<ServerConfig>; 2],
    /// The same for those that ask for a certificate. `None`: the target has none.
    certified: Option<[Arc<ServerConfig>; 2]>,
}

impl Server {
    /// Admits every key here, and every certificate: the policy decides afterwards, and the source then learns why it may not connect.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub(super) fn new(keys: &TlsKeys) -> Result<Self, Error> {
        let configs = |own: &Arc<dyn ResolvesServerCert>| -> Result<_, Error> {
            Ok([
                server(Arc::clone(own), Kind::RawKey)?,
                server(Arc::clone(own), Kind::Certificate)?,
            ])
        };
        let own: Arc<dyn ResolvesServerCert> = Arc::new(AlwaysResolvesServerRawPublicKeys::new(raw(keys)));
        let certified = certificate(keys).map(|own| configs(&(own as Arc<dyn ResolvesServerCert>)));
        Ok(Self {
            raw: configs(&own)?,
            certified: certified.transpose()?,
        })
    }

    /// The configuration for a source. If it asks for a certificate and there is none, rustls refuses it, which the source takes for that.
    pub(super) fn choose(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        let asked = Kind::of(hello.server_cert_types());
        let configs = match &self.certified {
            Some(certified) if asked == Kind::Certificate => certified,
            _ => &self.raw,
        };
        let sent = Kind::of(hello.client_cert_types());
        Arc::clone(&configs[usize::from(sent == Kind::Certificate)])
    }
}

fn server(own: Arc<dyn ResolvesServerCert>, sources: Kind) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(AnySource(sources)))
        .with_cert_resolver(own);
    // Each connection proves its key anew: it may have been revoked.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Why what answers is no target that the source connects to.
#[derive(Clone, Debug)]
pub(super) enum Unknown {
    /// Its key is of none that the source knows.
    Key(PublicKey),
    /// Its certificate is not accepted.
    Certificate(CertificateError),
}

/// What a source connects by, and where it is kept why it does not connect to what answers.
pub(super) struct Client {
    pub(super) config: Arc<ClientConfig>,
    pub(super) unknown: Arc<OnceLock<Unknown>>,
}

impl Client {
    /// Connects to a target of this name, if certificates decide.
    ///
    /// # Errors
    /// rustls refuses the configuration.
    pub(super) fn new(keys: &TlsKeys, name: &str) -> Result<Self, Error> {
        let unknown = Arc::new(OnceLock::new());
        let targets: Arc<dyn ServerCertVerifier> = match keys.targets() {
            Some((authority, chosen)) => Arc::new(CertifiedTarget {
                authority: authority.clone(),
                name: chosen.unwrap_or(name).into(),
                unknown: Arc::clone(&unknown),
            }),
            None => Arc::new(KnownTargets {
                keys: keys.clone(),
                unknown: Arc::clone(&unknown),
            }),
        };
        let own: Arc<dyn ResolvesClientCert> = match certificate(keys) {
            Some(own) => own,
            None => Arc::new(AlwaysResolvesClientRawPublicKeys::new(raw(keys))),
        };
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(targets)
            .with_client_cert_resolver(own);
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let config = Arc::new(config);
        Ok(Self { config, unknown })
    }
}

/// The name that rustls wants of a server. It is not sent: the verifiers here have a name of their own, or need none.
pub(super) fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into())
}

/// The methods in which the verifiers of both sides are the same: the peer's key is one of ed25519, and TLS 1.2 is not spoken.
macro_rules! ed25519_keys {
    ($this:ident => $kind:expr) => {
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
            sent: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let $this = self;
            $kind.verify(message, sent, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            let $this = self;
            $kind == Kind::RawKey
        }
    };
}

/// Any source that proves to hold an ed25519 key.
#[derive(Debug)]
struct AnySource(Kind);

impl ClientCertVerifier for AnySource {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        sent: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let is_alone = others.is_empty() || self.0 == Kind::Certificate;
        match self.0.key(sent) {
            Some(_) if is_alone => Ok(ClientCertVerified::assertion()),
            _ => Err(Tls::BadEncoding.into()),
        }
    }

    ed25519_keys!(this => this.0);
}

/// The targets whose keys a source knows.
#[derive(Debug)]
struct KnownTargets {
    keys: TlsKeys,
    unknown: Arc<OnceLock<Unknown>>,
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
                let _ = self.unknown.set(Unknown::Key(key));
                Err(Tls::ApplicationVerificationFailure.into())
            }
            None => Err(Tls::BadEncoding.into()),
        }
    }

    ed25519_keys!(_this => Kind::RawKey);
}

/// The targets of one name that an authority certifies.
#[derive(Debug)]
struct CertifiedTarget {
    authority: CertificateAuthority,
    name: String,
    unknown: Arc<OnceLock<Unknown>>,
}

impl ServerCertVerifier for CertifiedTarget {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain: Vec<_> = std::iter::once(leaf).chain(others).cloned().collect();
        let names = [self.name.as_str()];
        match self.authority.check_named(&chain, CertifiedSide::Target, names) {
            Ok(_) if key_of_certificate(leaf).is_some() => Ok(ServerCertVerified::assertion()),
            Ok(_) => Err(Tls::BadEncoding.into()),
            Err(error) => {
                let _ = self.unknown.set(Unknown::Certificate(error));
                Err(Tls::ApplicationVerificationFailure.into())
            }
        }
    }

    ed25519_keys!(_this => Kind::Certificate);
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
        let neutral = [&spki[..12], &[1], &[0; 31]].concat();
        assert_eq!(key_of(&neutral), None);
    }

    #[test]
    fn a_source_that_does_not_offer_its_raw_key_proves_itself_by_certificates() {
        use CertificateType::{RawPublicKey, X509};
        for (stated, kind) in [
            (None, Kind::Certificate),
            (Some(&[][..]), Kind::Certificate),
            (Some(&[X509]), Kind::Certificate),
            (Some(&[RawPublicKey]), Kind::RawKey),
            (Some(&[X509, RawPublicKey]), Kind::RawKey),
        ] {
            assert_eq!(Kind::of(stated), kind, "{stated:?}");
        }
    }

    #[test]
    fn a_raw_key_stands_alone_and_a_target_is_the_one_whose_key_is_known() {
        let [known, other] = [3, 4].map(|seed| SecretKey::from_seed([seed; 32], "").public());
        let sent = |key| CertificateDer::from(spki_of(key));
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1 << 30));
        let source = |others: &[_]| AnySource(Kind::RawKey).verify_client_cert(&sent(&known), others, now);
        assert!(source(&[]).is_ok() && source(&[sent(&other)]).is_err());
        let garbage = CertificateDer::from(vec![1; 44]);
        assert!(
            AnySource(Kind::RawKey)
                .verify_client_cert(&garbage, &[], now)
                .is_err()
        );

        let unknown = Arc::new(OnceLock::new());
        let targets = KnownTargets {
            keys: TlsKeys::new(SecretKey::from_seed([9; 32], "")).peer(known),
            unknown: Arc::clone(&unknown),
        };
        let name = ServerName::try_from("host").unwrap();
        let target = |key, others: &[_]| targets.verify_server_cert(&sent(key), others, &name, &[], now);
        assert!(target(&known, &[]).is_ok() && unknown.get().is_none());
        assert!(target(&known, &[sent(&other)]).is_err());
        assert!(target(&other, &[]).is_err());
        assert!(
            targets
                .verify_server_cert(&garbage, &[], &name, &[], now)
                .is_err()
        );
        assert!(
            matches!(unknown.get(), Some(Unknown::Key(key)) if *key == known),
            "the first one"
        );
    }
}
