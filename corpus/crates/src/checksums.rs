//! Hashes and checksums.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash, Hasher};

use corpus_case::{Put, World, words};
use ifunc::prelude::*;
use sha2::Digest;

/// BLAKE3: keyed, derived and extended, with its assembly or intrinsics.
#[ifunc]
pub fn blake3_hash(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::from(blake3::hash(input).as_bytes());
    let mut key = [7; 32];
    key[..8].copy_from_slice(&world.seed.to_le_bytes());
    let mut hasher = blake3::Hasher::new_keyed(&key);
    for chunk in input.chunks(777) {
        hasher.update(chunk);
    }
    let mut long = [0; 200];
    hasher.finalize_xof().fill(&mut long);
    out.extend_from_slice(&long);
    out.extend_from_slice(&blake3::derive_key("corpus 1", input));
    out.put(alloc::format!("{}", blake3::hash(&out)));
    out
}

/// SHA-2, which detects CPU features at run time.
#[ifunc]
pub fn sha2_hashes(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::from(&sha2::Sha256::digest(input)[..]);
    let mut hasher = sha2::Sha512::new();
    for chunk in input.chunks(100) {
        hasher.update(chunk);
    }
    out.extend_from_slice(&hasher.finalize());
    out.extend_from_slice(&sha2::Sha224::digest(&out));
    out
}

/// CRCs of several widths, with tables computed at compile time.
#[ifunc]
pub fn crcs(input: &[u8], _world: &mut World) -> Vec<u8> {
    static CRC_32: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
    const CRC_64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);
    const CRC_16: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_IBM_3740);
    let mut out = Vec::new();
    out.put(CRC_32.checksum(input));
    out.put(CRC_64.checksum(input));
    out.put(CRC_16.checksum(input));
    let mut digest = CRC_32.digest();
    input.chunks(9).for_each(|chunk| digest.update(chunk));
    out.put(digest.finalize());
    out
}

/// Hashers with fixed seeds.
#[ifunc]
pub fn hashers(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let fold = foldhash::fast::FixedState::with_seed(world.seed);
    let quality = foldhash::quality::FixedState::with_seed(world.seed);
    out.put(fold.hash_one(input));
    out.put(quality.hash_one((input.len(), input)));
    let mut fnv = fnv::FnvHasher::default();
    for word in words(input) {
        word.hash(&mut fnv);
    }
    out.put(fnv.finish());
    #[allow(deprecated, reason = "the hasher that core has")]
    let mut sip = core::hash::SipHasher::new_with_keys(world.seed, 5);
    input.hash(&mut sip);
    out.put(sip.finish());
    out
}

corpus_case::cases! {
    blake3_hash: "blake3";
    sha2_hashes: "sha2";
    crcs: "crc";
    hashers: "foldhash", "fnv", "core::hash";
}
