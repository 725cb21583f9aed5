//! What a message's payload amounts to, and a stream of them. Three times the same: here for the ifunc in Rust and for
//! the source, which includes this file, and in `c/t_c_soak.c`.

const A: u64 = 0x9e37_79b9_7f4a_7c15;
const B: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// A hash of bytes: four sums side by side, so that it costs no more than reading them.
pub(crate) fn bytes(bytes: &[u8]) -> u64 {
    let mut sums = [A, B, !A, !B];
    let mut blocks = bytes.chunks_exact(32);
    for block in &mut blocks {
        for (sum, word) in sums.iter_mut().zip(block.chunks_exact(8)) {
            *sum = (*sum ^ word_of(word)).wrapping_mul(A).rotate_left(29);
        }
    }
    let mut hash = bytes.len() as u64;
    for sum in sums {
        hash = mix(hash, sum);
    }
    for word in blocks.remainder().chunks(8) {
        hash = mix(hash, word_of(word));
    }
    hash
}

/// A hash of a stream to which `next` is added: another one for every order.
pub(crate) fn mix(stream: u64, next: u64) -> u64 {
    let mixed = (stream ^ next.wrapping_mul(B)).wrapping_mul(A);
    mixed ^ (mixed >> 32)
}

/// Up to eight bytes, the missing ones as zeros.
fn word_of(bytes: &[u8]) -> u64 {
    if let Ok(whole) = bytes.try_into() {
        return u64::from_le_bytes(whole);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
