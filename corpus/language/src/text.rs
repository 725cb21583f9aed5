//! Characters and strings.

use alloc::string::String;
use alloc::vec::Vec;

use corpus_case::{Put, World, text};
use ifunc::prelude::*;

/// Characters: classes, case, encodings.
#[ifunc]
pub fn characters(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for c in text(input)
        .chars()
        .take(1500)
        .chain("ßŉǰΰﬃİıΣς𐐀🦀\u{301}٣Ⅷ".chars())
    {
        out.put(c);
        let kinds = [
            c.is_alphabetic(),
            c.is_numeric(),
            c.is_uppercase(),
            c.is_lowercase(),
            c.is_whitespace(),
            c.is_control(),
            c.is_alphanumeric(),
            c.is_ascii_punctuation(),
        ];
        out.put(kinds.iter().fold(0_u8, |all, kind| all << 1 | u8::from(*kind)));
        c.to_uppercase().chain(c.to_lowercase()).for_each(|c| out.put(c));
        out.put((c.len_utf8() * 10 + c.len_utf16()) as u8);
        out.put(c.to_digit(36));
    }
    out.truncate(60_000);
    out
}

/// Strings: searching, splitting, replacing, trimming, case mapping.
#[ifunc]
pub fn strings(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let text = text(input);
    let text: String = text.chars().take(3000).collect();
    out.put(text.to_uppercase().len());
    out.put(text.to_lowercase());
    out.put(text.find("the"));
    out.put(text.rfind(char::is_whitespace));
    out.put(text.matches("ab").count());
    out.put(text.replace("o", "00").len());
    out.put(
        text.split_once('=')
            .map(|(a, b)| (String::from(a), String::from(b))),
    );
    out.put(text.trim().len());
    out.put(text.lines().map(|line| line.trim_end().len()).collect::<Vec<_>>());
    out.put(
        text.split_whitespace()
            .rev()
            .take(20)
            .collect::<Vec<_>>()
            .join("/"),
    );
    out.put(
        text.char_indices()
            .filter(|(index, c)| index % 3 == 0 && c.is_ascii())
            .count(),
    );
    out.put(
        text.bytes()
            .rev()
            .fold(0_u32, |hash, byte| hash.rotate_left(5) ^ u32::from(byte)),
    );
    out.put(text.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(unit.into())
    }));
    out.put(text.repeat(2).len());
    out.put(text.eq_ignore_ascii_case(&text.to_ascii_uppercase()));
    out.put(text.escape_debug().take(200).collect::<String>());
    out.put(text.as_str().cmp("middle") as i8);
    out.put(text.is_char_boundary(text.len() / 2));
    out
}

/// UTF-8 validation, with the position of errors.
#[ifunc]
pub fn utf8(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for start in 0..input.len().min(64) {
        match core::str::from_utf8(&input[start..]) {
            Ok(text) => out.put(text.chars().count()),
            Err(error) => {
                out.put(error.valid_up_to());
                out.put(error.error_len());
                out.put(alloc::format!("{error}"));
            }
        }
    }
    let lossy = String::from_utf8_lossy(input);
    out.put(lossy.len());
    out.put(
        input
            .utf8_chunks()
            .map(|chunk| chunk.invalid().len())
            .sum::<usize>(),
    );
    out.put(
        String::from_utf16_lossy(
            &input
                .iter()
                .map(|b| 0xd700 + u16::from(*b) * 8)
                .collect::<Vec<_>>(),
        )
        .len(),
    );
    out
}

corpus_case::cases! {
    characters: "char", "Unicode case mapping";
    strings: "str and String";
    utf8: "UTF-8 validation";
}
