//! Keys that sign images, the signatures that stand beside them, and the files that hold both.
//!
//! `cargo ifunc keygen` makes a pair of keys, `cargo ifunc sign` writes `NAME.sig` beside `NAME.so`. A source sends the signature
//! with the image; a target checks it if its [`Policy`](crate::Policy) knows keys. The id of an image does not depend on its
//! signature.
//!
//! Each file is text: lines that begin with `#` are comments, and each other line is one key or one signature.
//!
//! ```text
//! ifunc-public-key ed25519 KEY NAME
//! ifunc-secret-key ed25519 SEED NAME
//! ifunc-signature ed25519 IMAGE KEY SIGNATURE
//! ```
//!
//! Keys, seeds, ids and signatures are hexadecimal. A signature is one of ed25519 over
//! [`ifunc_abi::signature::message`] of the image's id.
//!
//! ```
//! use ifunc_rt::keys::{SecretKey, Signatures};
//!
//! let key = SecretKey::generate("build server")?;
//! let image = [7; 32];
//! let signature = key.sign(&image);
//! signature.verify()?;
//!
//! let file: Signatures = signature.to_string().parse()?;
//! assert_eq!(file.of(&image).unwrap().key(), key.public());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "tls")]
mod authority;
#[cfg(feature = "tls")]
pub(crate) mod certificate;
mod file;
mod hex;
mod tls;

use std::fmt;
use std::io::Read as _;
use std::path::PathBuf;

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use ifunc_abi::ImageId;
use ifunc_abi::signature;

#[cfg(feature = "tls")]
pub(crate) use authority::CertifiedSide;
#[cfg(feature = "tls")]
pub use authority::{CertificateAuthority, CertificateError};
#[cfg(feature = "tls")]
pub use certificate::Certificate;
pub(crate) use hex::Hex;
pub use tls::TlsKeys;

/// Why text or bytes are no key, or no signature.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Text that does not have the form of its kind.
    #[error("{0}")]
    Form(String),
    /// A public key that is no point of the curve, or one with which everything verifies.
    #[error(
        "`{0}` is not an ed25519 public key with which signatures can be checked; help: `cargo ifunc keygen` makes one"
    )]
    NoKey(String),
    /// A line of a file.
    #[error("`{}`, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, counted from 1.
        line: usize,
        /// What is wrong with it, and what to write.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {doing} `{}`: {error}", path.display())]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// A file holds no certificate, or not what it must hold for its use.
    #[error("`{}` is no file of certificates for this: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The certificate is of another key than the process's own.
    #[error(
        "the certificate is of the key {certified}, and this process has the key {own}; help: name the key that the certificate was made for"
    )]
    OtherKey {
        /// The key of the certificate.
        certified: PublicKey,
        /// The key of the process.
        own: PublicKey,
    },
    /// Other users may read or write a file that holds a secret key.
    #[error(
        "`{path}` is a secret key that other users may read (mode {mode:o}); help: `chmod 600 {path}`, and make a new key if one may have",
        path = path.display()
    )]
    NotSecret {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

#[cfg(feature = "tls")]
impl KeyError {
    fn certificate(path: &std::path::Path, why: String) -> Self {
        Self::Certificate {
            path: path.to_owned(),
            why,
        }
    }
}

/// The signature does not match the image and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this key did not make this signature for this image")]
pub struct WrongSignature;

/// A public key: the holder of the [secret key](SecretKey) of it can sign. Displays as 64 hexadecimal digits, which also parse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// The key of these bytes, as RFC 8032 encodes it.
    ///
    /// # Errors
    /// [`KeyError::NoKey`]: they are no point of the curve, or one of small order.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        match VerifyingKey::from_bytes(&bytes) {
            Ok(key) if !key.is_weak() => Ok(Self(bytes)),
            _ => Err(KeyError::NoKey(Hex(&bytes).to_string())),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::str::FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = hex::parse(text).ok_or_else(|| {
            KeyError::Form(format!(
                "`{text}` is not a public key: 64 hexadecimal digits, as in the file that `cargo ifunc keygen` writes"
            ))
        })?;
        Self::from_bytes(bytes)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A secret key, and its name. Its memory is overwritten when it is dropped.
pub struct SecretKey {
    key: SigningKey,
    name: String,
}

impl SecretKey {
    /// A new key, from the system's random numbers.
    ///
    /// # Errors
    /// The system has none.
    pub fn generate(name: impl Into<String>) -> std::io::Result<Self> {
        let mut seed = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Self::from_seed(seed, name))
    }

    /// The key of this seed, as RFC 8032 defines it.
    #[must_use]
    pub fn from_seed(seed: [u8; 32], name: impl Into<String>) -> Self {
        Self {
            key: SigningKey::from_bytes(&seed),
            name: name.into(),
        }
    }

    /// Its name: a note for people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.key.verifying_key().to_bytes())
    }

    /// The key as PKCS#8 (RFC 8410), for tools that make certificates.
    #[must_use]
    pub fn to_pkcs8(&self) -> Vec<u8> {
        const HEAD: [u8; 16] = [
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
        ];
        [&HEAD[..], self.key.as_bytes()].concat()
    }

    /// Signs a message.
    #[cfg(feature = "tls")]
    pub(crate) fn sign_message(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }

    /// Signs an image.
    #[must_use]
    pub fn sign(&self, image: &ImageId) -> Signature {
        let signed = self.key.sign(&signature::message(image));
        Signature {
            image: *image,
            raw: signature::Signature {
                key: self.public().0,
                signature: signed.to_bytes(),
            },
        }
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({}, of {})", self.name, self.public())
    }
}

/// A signature of an image. Displays as a line of a file, which also parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    image: ImageId,
    raw: signature::Signature,
}

impl Signature {
    /// Id of the image that it says that it signs.
    #[must_use]
    pub fn image(&self) -> &ImageId {
        &self.image
    }

    /// The key that it says that it is of.
    #[must_use]
    pub fn key(&self) -> PublicKey {
        PublicKey(self.raw.key)
    }

    /// Whether it is one of its image by its key.
    ///
    /// # Errors
    /// It is not.
    pub fn verify(&self) -> Result<(), WrongSignature> {
        verify(&self.image, &self.raw)
    }

    pub(crate) fn raw(&self) -> signature::Signature {
        self.raw
    }
}

/// Whether a signature is one of the message by the key.
#[cfg(feature = "tls")]
pub(crate) fn is_signed(message: &[u8], key: &PublicKey, signature: &[u8]) -> bool {
    let key = VerifyingKey::from_bytes(&key.0);
    let signature = ed25519_dalek::Signature::from_slice(signature);
    matches!((key, signature), (Ok(key), Ok(signature)) if key.verify_strict(message, &signature).is_ok())
}

/// Whether a signature is one of the image by its key.
pub(crate) fn verify(image: &ImageId, raw: &signature::Signature) -> Result<(), WrongSignature> {
    let key = VerifyingKey::from_bytes(&raw.key).map_err(|_| WrongSignature)?;
    let signature = ed25519_dalek::Signature::from_bytes(&raw.signature);
    key.verify_strict(&signature::message(image), &signature)
        .map_err(|_| WrongSignature)
}

/// Signatures of several images, or of one image by several keys: the content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signatures(Vec<Signature>);

impl Signatures {
    /// The first signature of an image.
    #[must_use]
    pub fn of(&self, image: &ImageId) -> Option<&Signature> {
        self.0.iter().find(|signature| signature.image == *image)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Signature> {
        self.0.iter()
    }

    /// Adds one, in place of one of the same image by the same key.
    pub fn add(&mut self, signature: Signature) {
        let is_same =
            |other: &Signature| (other.image, other.raw.key) == (signature.image, signature.raw.key);
        self.0.retain(|other| !is_same(other));
        self.0.push(signature);
    }

    /// Removes those of all images but these.
    pub fn retain_images(&mut self, images: &[ImageId]) {
        self.0.retain(|signature| images.contains(&signature.image));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const IMAGE: ImageId = [9; 32];

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_seed([seed; 32], "test")
    }

    #[test]
    fn a_signature_is_of_one_image_and_one_key() {
        let signature = key(1).sign(&IMAGE);
        assert_eq!(signature.verify(), Ok(()));
        for change in [
            |s: &mut Signature| s.image[31] ^= 1,
            |s: &mut Signature| s.raw.key = key(2).public().0,
            |s: &mut Signature| s.raw.signature[0] ^= 1,
            |s: &mut Signature| s.raw.signature[63] ^= 0x80,
            |s: &mut Signature| s.raw.key = [0xff; 32],
        ] {
            let mut changed = signature;
            change(&mut changed);
            assert_eq!(changed.verify(), Err(WrongSignature));
        }
        assert_ne!(
            SecretKey::generate("").unwrap().public(),
            SecretKey::generate("").unwrap().public()
        );
    }

    #[test]
    fn a_key_with_which_everything_verifies_is_none() {
        // The neutral element, whose multiples are all the same.
        let neutral = format!("01{}", "00".repeat(31));
        let error = neutral.parse::<PublicKey>().unwrap_err();
        assert!(matches!(error, KeyError::NoKey(_)), "{error}");
        assert!(
            error.to_string().contains("help: `cargo ifunc keygen`"),
            "{error}"
        );
        let public = key(1).public();
        assert_eq!(public.to_string().parse::<PublicKey>().unwrap(), public);
        for text in ["", "12", &"zz".repeat(32), &"0".repeat(63), &"ä".repeat(32)] {
            let error = text.parse::<PublicKey>().unwrap_err();
            assert!(matches!(error, KeyError::Form(_)), "{error}");
            assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
        }
    }

    #[test]
    fn the_latest_signature_by_a_key_counts() {
        let mut all = Signatures::default();
        all.add(key(1).sign(&IMAGE));
        all.add(key(2).sign(&IMAGE));
        all.add(key(1).sign(&IMAGE));
        all.add(key(1).sign(&[1; 32]));
        assert_eq!(all.iter().count(), 3);
        assert_eq!(all.of(&IMAGE).unwrap().key(), key(2).public());
        all.retain_images(&[[1; 32]]);
        assert_eq!((all.iter().count(), all.of(&IMAGE)), (1, None));
    }
}
