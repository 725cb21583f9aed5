//! Compression, search and encoding of bytes.

use alloc::string::ToString;
use alloc::vec::Vec;

use base64::Engine as _;
use corpus_case::{Put, World, text};
use ifunc::prelude::*;

/// LZ4: compression, decompression, and rejection of malformed input.
#[ifunc]
pub fn lz4(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = lz4_flex::compress_prepend_size(input);
    out.truncate(50_000);
    let packed = lz4_flex::compress(input);
    let back = lz4_flex::decompress(&packed, input.len());
    out.put(back.is_ok_and(|back| back == input));
    out.put(
        lz4_flex::decompress(input, 100)
            .map_err(|error| error.to_string())
            .err(),
    );
    out
}

/// DEFLATE, at several levels.
#[ifunc]
pub fn deflate(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for level in [1, (world.seed % 9) as u8, 9] {
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(&input[..input.len().min(9000)], level);
        let back = miniz_oxide::inflate::decompress_to_vec_zlib(&packed);
        out.put(back.is_ok_and(|back| back == input[..input.len().min(9000)]));
        out.extend(packed);
    }
    out.put(
        miniz_oxide::inflate::decompress_to_vec(input)
            .map_err(|error| error.status as i32)
            .err(),
    );
    out
}

/// Searches for bytes and words in long texts.
#[ifunc]
pub fn memchr_searches(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    out.put(memchr::memchr(b'e', input));
    out.put(memchr::memrchr(world.seed as u8, input));
    out.put(memchr::memchr3(b'x', b'y', b'z', input));
    out.put(memchr::memchr_iter(b' ', input).count());
    let finder = memchr::memmem::Finder::new("needle");
    out.put(finder.find(input));
    out.put(
        memchr::memmem::find_iter(input, b"an")
            .take(500)
            .map(|at| at as u32)
            .collect::<Vec<_>>(),
    );
    out.put(memchr::memmem::rfind(
        input,
        &input[input.len() / 2..(input.len() / 2 + 9).min(input.len())],
    ));
    out
}

/// Base64 in two alphabets.
#[ifunc]
pub fn base64_text(input: &[u8], _world: &mut World) -> Vec<u8> {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let mut out = Vec::new();
    let input = &input[..input.len().min(10_000)];
    let encoded = STANDARD.encode(input);
    out.put(STANDARD.decode(&encoded).is_ok_and(|back| back == input));
    out.put(encoded);
    out.put(URL_SAFE_NO_PAD.encode(input));
    out.put(
        URL_SAFE_NO_PAD
            .decode(input)
            .map_err(|error| error.to_string())
            .err(),
    );
    out
}

/// Numbers to text without `core::fmt`.
#[ifunc]
pub fn number_text(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut integers, mut floats) = (itoa::Buffer::new(), ryu::Buffer::new());
    for word in corpus_case::words(input).chain([world.seed]).take(500) {
        out.put(integers.format(word));
        out.put(integers.format(i128::from(word) * -3));
        out.put(floats.format(f64::from_bits(word)));
        out.put(floats.format(word as f32 / 3.0));
    }
    out.truncate(60_000);
    out
}

/// Words and grapheme clusters.
#[ifunc]
pub fn segmentation(input: &[u8], _world: &mut World) -> Vec<u8> {
    use unicode_segmentation::UnicodeSegmentation;
    let mut out = Vec::new();
    let text = text(&input[..input.len().min(4000)]);
    let text = alloc::format!("{text} e\u{301}🇩🇪🇫🇷 👩‍👩‍👧 can't 3.14");
    out.put(
        text.graphemes(true)
            .map(|cluster| cluster.len() as u8)
            .collect::<Vec<_>>(),
    );
    out.put(text.unicode_words().count());
    out.put(
        text.split_word_bound_indices()
            .map(|(at, _)| at as u16)
            .collect::<Vec<_>>(),
    );
    out
}

corpus_case::cases! {
    lz4: "lz4_flex";
    deflate: "miniz_oxide";
    memchr_searches: "memchr";
    base64_text: "base64";
    number_text: "itoa", "ryu";
    segmentation: "unicode-segmentation";
}
