//! Signatures, ciphers and compression.

use alloc::vec::Vec;

use aes_gcm::Aes256Gcm;
use chacha20poly1305::ChaCha20Poly1305;
use chacha20poly1305::aead::{Aead, KeyInit};
use corpus_case::{Disorder, Put, World};
use ifunc::prelude::*;
use p256::ecdsa::signature::{Signer, Verifier};

/// A key that depends on the world.
fn key(world: &World) -> [u8; 32] {
    let mut key = [0; 32];
    for (bytes, word) in key.chunks_exact_mut(8).zip(Disorder::new(world.seed)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    key
}

/// Signatures on an Edwards curve.
#[ifunc]
pub fn edwards_signatures(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let key = ed25519_dalek::SigningKey::from_bytes(&key(world));
    let signature = ed25519_dalek::Signer::sign(&key, input);
    out.put(signature.to_bytes().to_vec());
    out.put(key.verifying_key().verify_strict(input, &signature).is_ok());
    out.put(key.verifying_key().verify_strict(b"another", &signature).is_ok());
    out
}

/// Signatures on a curve of the NIST.
#[ifunc]
pub fn nist_signatures(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let Ok(key) = p256::ecdsa::SigningKey::from_slice(&key(world)) else {
        return out;
    };
    let signature: p256::ecdsa::Signature = key.sign(input);
    out.put(signature.to_bytes().to_vec());
    let public = p256::ecdsa::VerifyingKey::from(&key);
    out.put(public.verify(input, &signature).is_ok());
    out.put(public.verify(b"another", &signature).is_ok());
    out
}

/// A stream cipher with a one-time authenticator.
#[ifunc]
pub fn stream_cipher(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let cipher = ChaCha20Poly1305::new(&key(world).into());
    let nonce = [7; 12].into();
    let mut sealed = cipher.encrypt(&nonce, input).unwrap_or_default();
    out.put(sealed.clone());
    out.put(
        cipher
            .decrypt(&nonce, &sealed[..])
            .is_ok_and(|back| back == input),
    );
    sealed[0] ^= 1;
    out.put(cipher.decrypt(&nonce, &sealed[..]).is_ok());
    out
}

/// A block cipher in counter mode, by the processor's instructions where it has them.
#[ifunc]
pub fn block_cipher(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let cipher = Aes256Gcm::new(&key(world).into());
    let nonce = [7; 12].into();
    let mut sealed = cipher.encrypt(&nonce, input).unwrap_or_default();
    out.put(sealed.clone());
    out.put(
        cipher
            .decrypt(&nonce, &sealed[..])
            .is_ok_and(|back| back == input),
    );
    sealed[0] ^= 1;
    out.put(cipher.decrypt(&nonce, &sealed[..]).is_ok());
    out
}

/// Zstandard.
#[ifunc]
pub fn zstandard(input: &[u8], _world: &mut World) -> Vec<u8> {
    use ruzstd::decoding::FrameDecoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    let mut out = Vec::new();
    let compressed = compress_to_vec(input, CompressionLevel::Fastest);
    let mut back = Vec::with_capacity(input.len() + 16);
    let result = FrameDecoder::new().decode_all_to_vec(&compressed, &mut back);
    out.put(result.is_ok() && back == input);
    out.put(compressed);
    let mut any = Vec::with_capacity(4096);
    out.put(FrameDecoder::new().decode_all_to_vec(input, &mut any).is_ok());
    out
}

corpus_case::cases! {
    edwards_signatures: "ed25519-dalek";
    nist_signatures: "p256";
    stream_cipher: "chacha20poly1305";
    block_cipher: "aes-gcm";
    zstandard: "ruzstd";
}
