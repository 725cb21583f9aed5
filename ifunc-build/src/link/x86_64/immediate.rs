//! How long the immediate operand behind a `[rip]` operand is: the distance to what is meant counts from its end.

use super::Bytes;

/// The lengths in bytes that the immediate of the instruction around the displacement at `at` may have, by the opcode
/// before it. Where prefixes can be the end of another instruction, there are several.
pub(super) fn lengths(at: Bytes<'_>) -> &'static [i64] {
    let (Some(opcode), Some(modrm)) = (at.before(2), at.before(1)) else {
        return &[0];
    };
    if modrm & 0xc7 != 0x05 {
        return &[0];
    }
    let before = |back| at.before(back).unwrap_or(0);
    // Opcodes of two bytes, and VEX and EVEX prefixes that stand for such.
    let escaped = before(3) == 0x0f || before(4) == 0xc5 || before(5) == 0xc4 || before(6) == 0x62;
    let third_map = (before(4) == 0x0f && before(3) == 0x3a)
        || (before(5) == 0xc4 && before(4) & 0x1f == 3)
        || (before(6) == 0x62 && before(5) & 0x07 == 3);
    if third_map {
        return &[0, 1];
    }
    let short = before(3) == 0x66 || (before(4) == 0x66 && before(3) & 0xf0 == 0x40);
    let group_3 = modrm >> 3 & 7 <= 1; // `test`; the others have no immediate
    match opcode {
        0x80 | 0x83 => &[1],
        0xc0 | 0xc1 | 0xc6 | 0x6b if !escaped => &[1],
        0xf6 if !escaped && group_3 => &[1],
        0xc0 | 0xc1 | 0xc6 | 0x6b | 0xf6 if escaped => &[0, 1],
        0x69 | 0x81 | 0xc7 if !escaped && !short => &[4],
        0xf7 if !escaped && !short && group_3 => &[4],
        0x69 | 0x81 | 0xc7 | 0xf7 if escaped || (short && (opcode != 0xf7 || group_3)) => &[0, 2, 4],
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4 | 0xc5 => &[1],
        _ => &[0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths_of(code: &[u8]) -> &'static [i64] {
        lengths(Bytes {
            bytes: code,
            offset: code.len(),
            text: true,
        })
    }

    #[test]
    fn the_opcode_says_how_long_the_immediate_is() {
        for (code, expected, what) in [
            (&[0x48, 0x8d, 0x05][..], &[0][..], "lea"),
            (&[0x66, 0x0f, 0x6f, 0x05], &[0], "movdqa"),
            (&[0x80, 0x3d], &[1], "cmpb"),
            (&[0x81, 0x3d], &[4], "cmpl"),
            (&[0x90, 0x48, 0x81, 0x3d], &[4], "cmpq"),
            (&[0x66, 0x81, 0x3d], &[0, 2, 4], "cmpw"),
            (&[0xf6, 0x05], &[1], "testb"),
            (&[0xf7, 0x3d], &[0], "idivl"),
            (&[0x48, 0x69, 0x05], &[4], "imul"),
            (&[0x66, 0x0f, 0x70, 0x05], &[1], "pshufd"),
            (
                &[0x0f, 0xc6, 0x05],
                &[0, 1],
                "shufps, or what ends in 0f and a movb",
            ),
            (&[0x66, 0x0f, 0x3a, 0x0f, 0x05], &[0, 1], "palignr"),
            (&[0xc4, 0xe3, 0x79, 0x0f, 0x05], &[0, 1], "vpalignr"),
            (&[0xe8], &[0], "call"),
            (&[0x48, 0x81, 0x45], &[0], "not [rip]"),
        ] {
            assert_eq!(lengths_of(code), expected, "{what}");
        }
    }
}
