//! Lengths of the immediate operand after a `[rip]` operand: the distance to the target counts from its end.

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
    // The map of opcodes that an escape of two bytes, a VEX or an EVEX prefix chooses.
    let map = |escape: u8, number: u8| {
        (before(4) == 0x0f && before(3) == escape)
            || (before(5) == 0xc4 && before(4) & 0x1f == number)
            || (before(6) == 0x62 && before(5) & 0x07 == number)
    };
    let escaped = before(3) == 0x0f || before(4) == 0xc5 || before(5) == 0xc4 || before(6) == 0x62;
    let short = before(3) == 0x66 || (before(4) == 0x66 && before(3) & 0xf0 == 0x40);
    let tests = modrm >> 3 & 7 <= 1; // the other instructions of this group have no immediate
    let one_map: &[i64] = match opcode {
        0x8b | 0x8d => return &[0], // with any prefix
        0x80 | 0x83 | 0xc6 | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4 | 0xc5 => &[1],
        0xc0 | 0xc1 | 0x6b => &[1],
        0xf6 if tests => &[1],
        0x69 | 0x81 | 0xc7 if !short => &[4],
        0xf7 if tests && !short => &[4],
        0x69 | 0x81 | 0xc7 => &[2, 4],
        0xf7 if tests => &[2, 4],
        _ => &[0],
    };
    match opcode {
        _ if map(0x3a, 3) => &[1],
        // None of the second map has an immediate.
        _ if map(0x38, 2) && one_map != [0] => &[0, 1, 2, 4],
        0xc0 | 0xc1 | 0x6b | 0xf6 | 0x69 | 0xc7 | 0xf7 if escaped => &[0, 1, 2, 4],
        _ => one_map,
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
    fn the_opcode_determines_the_length_of_the_immediate() {
        for (code, expected, what) in [
            (&[0x48, 0x8d, 0x05][..], &[0][..], "lea"),
            (&[0x66, 0x0f, 0x6f, 0x05], &[0], "movdqa"),
            (&[0x80, 0x3d], &[1], "cmpb"),
            (&[0x81, 0x3d], &[4], "cmpl"),
            (&[0x90, 0x48, 0x81, 0x3d], &[4], "cmpq"),
            (&[0x66, 0x81, 0x3d], &[2, 4], "cmpw, or a prefix that is none"),
            (&[0xf6, 0x05], &[1], "testb"),
            (&[0xf7, 0x3d], &[0], "idivl"),
            (&[0x48, 0x69, 0x05], &[4], "imul"),
            (&[0x66, 0x0f, 0x70, 0x05], &[1], "pshufd"),
            (&[0x0f, 0xc6, 0x05], &[1], "shufps"),
            (
                &[0x66, 0x0f, 0x6b, 0x05],
                &[0, 1, 2, 4],
                "packssdw, or the end of something and imul",
            ),
            (&[0x66, 0x0f, 0x38, 0x00, 0x05], &[0], "pshufb"),
            (&[0x66, 0x0f, 0x38, 0xf6, 0x05], &[0, 1, 2, 4], "adcx"),
            (&[0x66, 0x0f, 0x3a, 0x0f, 0x05], &[1], "palignr"),
            (&[0xc4, 0xe3, 0x79, 0x0f, 0x05], &[1], "vpalignr"),
            (&[0xe8], &[0], "call"),
            (&[0x48, 0x81, 0x45], &[0], "not [rip]"),
        ] {
            assert_eq!(lengths_of(code), expected, "{what}");
        }
    }
}
