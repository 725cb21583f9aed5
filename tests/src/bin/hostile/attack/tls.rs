//! A connection over TLS, made by hand: with a key that the target admits, with another, or broken on the way.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use ifunc_abi::frame::{Limits, commit_word};
use ifunc_abi::hello::{Hello, Roles, TransportTag};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use super::Wire;
use crate::Result;
use crate::random::Random;

/// Whose key an attacker proves to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// That of the file which `IFUNC_TLS_KEY` names.
    Admitted,
    /// One that no policy knows.
    Unknown,
}

/// How a PKCS #8 document of an ed25519 key begins (RFC 8410); the 32 bytes of the seed follow.
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

impl Key {
    fn seed(self) -> Result<Vec<u8>> {
        if self == Self::Unknown {
            return Ok(vec![77; 32]);
        }
        let path = std::env::var_os("IFUNC_TLS_KEY").ok_or("IFUNC_TLS_KEY is not set")?;
        let text = std::fs::read_to_string(path)?;
        let line = text.lines().find(|line| line.starts_with("ifunc-secret-key"));
        let digits = line
            .and_then(|line| line.split_whitespace().nth(2))
            .ok_or("no key in the file")?;
        let pairs = digits.as_bytes().chunks(2);
        pairs
            .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
            .collect()
    }

    /// What a source connects by; the target is not asked who it is.
    fn config(self) -> Result<ClientConfig> {
        let document = PrivatePkcs8KeyDer::from([&PKCS8[..], &self.seed()?].concat());
        let signing = ring::sign::any_eddsa_type(&document)?;
        let public = signing.public_key().ok_or("no public key")?;
        let key = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], signing);
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyTarget))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::new(key))));
        config.enable_sni = false;
        config.alpn_protocols = vec![b"ifunc".to_vec()];
        Ok(config)
    }
}

/// Accepts any certificate: the attacker does not check which target answers.
#[derive(Debug)]
struct AnyTarget;

impl ServerCertVerifier for AnyTarget {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// A connected socket.
pub(super) fn knock(address: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address.trim_start_matches("tls://"))?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    stream.set_write_timeout(Some(Duration::from_millis(500)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn client(key: Key) -> Result<ClientConnection> {
    let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
    Ok(ClientConnection::new(Arc::new(key.config()?), name)?)
}

/// What a client says first.
pub(super) fn first_record() -> Result<Vec<u8>> {
    let mut record = Vec::new();
    client(Key::Admitted)?.write_tls(&mut record)?;
    Ok(record)
}

/// A handshake with a key that the target does not admit, and frames behind it.
pub(super) fn stranger(address: &str, random: &mut Random) -> Result {
    let mut raw = Raw::connect(address, Key::Unknown)?;
    for _ in 0..10 {
        super::frames::garbage(&mut raw, random);
    }
    Ok(())
}

/// Frames whose records are changed, cut or repeated on the way.
pub(super) fn garble(address: &str, random: &mut Random) -> Result {
    let mut raw = Raw::connect(address, Key::Admitted)?;
    for _ in 0..random.below(20) {
        super::frames::garbage(&mut raw, random);
    }
    raw.tls.writer().write_all(&[7; 3000])?;
    let mut records = Vec::new();
    raw.tls.write_tls(&mut records)?;
    let at = random.below(records.len());
    match random.below(4) {
        0 => records[at] ^= 1 << random.below(8),
        1 => records.truncate(at),
        2 => records.extend_from_within(..),
        _ => drop(records.splice(at..at, random.bytes(100))),
    }
    raw.stream.write_all(&records)?;
    let mut answer = [0; 1000];
    let _ = raw.stream.read(&mut answer);
    Ok(())
}

/// A connection.
pub(super) struct Raw {
    stream: TcpStream,
    tls: ClientConnection,
    sent: u32,
    /// Frames and units of data that the attacker says to have taken.
    released: u64,
}

impl Raw {
    /// Makes a connection as a source does.
    pub(super) fn connect(address: &str, key: Key) -> Result<Self> {
        let mut raw = Self {
            stream: knock(address)?,
            tls: client(key)?,
            sent: 0,
            released: 0,
        };
        let hello = Hello {
            arch: 62,
            roles: Roles::INVOKES,
            cpu_features: 0,
            node: None,
            epoch: 0,
            limits: Limits {
                max_payload: 0,
                max_image: 0,
                max_answer: 1 << 20,
            },
        };
        let encoded = hello.encode(TransportTag::TLS);
        raw.tls
            .writer()
            .write_all(&(encoded.len() as u16).to_le_bytes())?;
        raw.tls.writer().write_all(&encoded)?;
        while raw.tls.is_handshaking() {
            raw.tls.complete_io(&mut raw.stream)?;
        }
        // The target's hello, or why there is none.
        raw.tls.complete_io(&mut raw.stream)?;
        raw.stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        Ok(raw)
    }

    /// Sends what TLS holds.
    fn flush(&mut self) -> bool {
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut self.stream).is_err() {
                return false;
            }
        }
        true
    }

    /// Takes what the target sent, so that its socket does not stay full. `false`: it has ended the connection.
    fn drain(&mut self) -> bool {
        match self.tls.read_tls(&mut self.stream) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
        if self.tls.process_new_packets().is_err() {
            return false;
        }
        let mut taken = [0; 16 << 10];
        let _ = self.tls.reader().read(&mut taken);
        true
    }

    fn head(&self, commit: u64, words: [u64; 2]) -> Vec<u8> {
        [commit, words[0], words[1], self.released]
            .map(u64::to_le_bytes)
            .concat()
    }
}

impl Wire for Raw {
    fn send(&mut self, words: [u64; 2], body: &[u8]) -> bool {
        self.sent = self.sent.wrapping_add(1);
        let head = self.head(commit_word(self.sent, body.len() as u32), words);
        let written = self
            .tls
            .writer()
            .write_all(&head)
            .and_then(|()| self.tls.writer().write_all(body));
        written.is_ok() && self.flush() && (!self.sent.is_multiple_of(16) || self.drain())
    }

    fn credit(&mut self, random: &mut Random) {
        if random.one_in(40) {
            self.released = random.odd_number();
            let head = self.head(0, [0; 2]);
            let _ = self.tls.writer().write_all(&head);
            self.flush();
        }
        self.drain();
    }
}
