//! Types whose values may come from a runner process: every content of their bytes is a value.

/// Deepest nesting of a type.
const MAX_DEPTH: usize = 32;

/// The size in bytes of the type that a canonical text describes, if every content of so many bytes is a value of it: integers and
/// floats, atomic or not, arrays and structs of those, without padding. `None`: it is another type.
#[must_use]
pub fn plain_size(text: &str) -> Option<usize> {
    let mut rest = text;
    let size = any(&mut rest, 0)?;
    rest.is_empty().then_some(size)
}

/// Takes a literal off the front.
fn take(rest: &mut &str, literal: &str) -> Option<()> {
    *rest = rest.strip_prefix(literal)?;
    Some(())
}

/// Takes a decimal number off the front.
fn number(rest: &mut &str) -> Option<usize> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    digits.parse().ok()
}

fn any(rest: &mut &str, depth: usize) -> Option<usize> {
    if depth > MAX_DEPTH {
        return None;
    }
    match rest.as_bytes().first()? {
        b'(' => take(rest, "()").map(|()| 0),
        b'[' => {
            take(rest, "[")?;
            let element = any(rest, depth + 1)?;
            take(rest, ";")?;
            let count = number(rest)?;
            take(rest, "]")?;
            element.checked_mul(count)
        }
        _ if rest.starts_with("struct ") => structure(rest, depth),
        _ => scalar(rest),
    }
}

fn scalar(rest: &mut &str) -> Option<usize> {
    const SIZES: [(&str, usize); 14] = [
        ("u8", 1),
        ("i8", 1),
        ("u16", 2),
        ("i16", 2),
        ("u32", 4),
        ("i32", 4),
        ("f32", 4),
        ("u64", 8),
        ("i64", 8),
        ("f64", 8),
        ("usize", size_of::<usize>()),
        ("isize", size_of::<usize>()),
        ("u128", 16),
        ("i128", 16),
    ];
    let text = rest.strip_prefix("atomic ").unwrap_or(rest);
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    let (_, size) = SIZES.into_iter().find(|(known, _)| *known == name)?;
    *rest = after;
    Some(size)
}

/// Largest alignment of a value that crosses: that of the buffers that values are copied to.
const MAX_ALIGN: usize = align_of::<u128>();

/// `struct NAME{OFFSET:FIELD:TYPE,..}[SIZE,ALIGN]`, with arguments in `<>` after the name of a generic one.
fn structure(rest: &mut &str, depth: usize) -> Option<usize> {
    let begin = rest.find(['<', '{'])?;
    *rest = &rest[begin..];
    if rest.starts_with('<') {
        let mut open = 0_usize;
        let end = rest.find(|c| {
            open = match c {
                '<' => open + 1,
                '>' => open.saturating_sub(1),
                _ => open,
            };
            open == 0
        })?;
        *rest = &rest[end + 1..];
    }
    take(rest, "{")?;
    let mut used = 0_usize;
    while take(rest, "}").is_none() {
        // Gaps are bytes without content.
        if number(rest)? != used {
            return None;
        }
        take(rest, ":")?;
        let name = rest.find(':')?;
        *rest = &rest[name + 1..];
        used = used.checked_add(any(rest, depth + 1)?)?;
        let _ = take(rest, ",");
    }
    take(rest, "[")?;
    let size = number(rest)?;
    take(rest, ",")?;
    let align = number(rest)?;
    take(rest, "]")?;
    (size == used && align <= MAX_ALIGN).then_some(size)
}

#[cfg(test)]
mod tests {
    use ifunc::{Layout, TargetArgs};

    use super::*;

    #[test]
    fn a_type_that_buffers_do_not_align_does_not_cross() {
        assert_eq!(structure(&mut "struct V{0:of:u64}[8,8]", 0), Some(8));
        assert_eq!(
            structure(&mut "struct V{0:low:u128,16:high:u128}[32,16]", 0),
            Some(32)
        );
        assert_eq!(
            structure(&mut "struct V{0:low:u128,16:high:u128}[32,32]", 0),
            None
        );
    }

    #[derive(Layout)]
    #[repr(C)]
    struct Point<T, const N: u8> {
        at: [T; 2],
        _weight: f64,
    }

    #[derive(Layout)]
    #[repr(C)]
    struct Nested {
        points: [Point<u64, 3>; 4],
        count: std::sync::atomic::AtomicU32,
        rest: i32,
    }

    #[derive(Layout)]
    #[repr(C)]
    struct Padded {
        small: u8,
        large: u64,
    }

    #[derive(Layout)]
    #[repr(C)]
    struct Flagged {
        flag: bool,
    }

    fn size_of_text<T: TargetArgs>() -> Option<usize> {
        plain_size(const { T::TEXT }.as_str())
    }

    #[test]
    fn types_of_which_every_content_is_a_value() {
        assert_eq!(size_of_text::<()>(), Some(0));
        assert_eq!(size_of_text::<u64>(), Some(8));
        assert_eq!(size_of_text::<[[u16; 3]; 2]>(), Some(12));
        assert_eq!(size_of_text::<Nested>(), Some(size_of::<Nested>()));
        assert_eq!(size_of_text::<Point<u8, 1>>(), None, "it has padding");
        assert_eq!(size_of_text::<Padded>(), None);
        assert_eq!(size_of_text::<Flagged>(), None);
        assert_eq!(size_of_text::<bool>(), None);
        assert_eq!(size_of_text::<char>(), None);
        let fields = (Padded { small: 0, large: 0 }, Flagged { flag: true });
        let nested = |nested: Nested| (nested.points[0].at[0], nested.count, nested.rest);
        let _ = (fields.0.small, fields.0.large, fields.1.flag, nested);
    }

    #[test]
    fn other_texts_are_no_types() {
        for text in [
            "",
            "opaque store/1",
            "interface Kv",
            "u65",
            "u64 ",
            "[u8]",
            "[u8;]",
            "[u64;18446744073709551615]",
            "struct A{0:a:u64}[8",
            "struct A{0:a:u64}[16,8]",
            "struct A{4:a:u32}[8,4]",
            "struct A<{0:a:u64}[8,8]",
            "enum A",
        ] {
            assert_eq!(plain_size(text), None, "{text}");
        }
        let deep = "[".repeat(100_000) + "u8" + &";1]".repeat(100_000);
        assert_eq!(plain_size(&deep), None);
    }

    #[test]
    fn arrays_are_nested_as_deep_as_the_limit() {
        let size = |depth: usize| plain_size(&("[".repeat(depth) + "u8" + &";1]".repeat(depth)));
        assert_eq!((size(MAX_DEPTH), size(MAX_DEPTH + 1)), (Some(1), None));
    }
}
