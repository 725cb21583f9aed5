//! Functions of the host that ifuncs in a runner process may call: how their arguments cross, by the canonical text of the signature.
//!
//! A call crosses as a *buffer*, whose layout both sides compute from the text: the result, the memory behind an out pointer, and then
//! each parameter, at multiples of 16 bytes. A parameter has two words (its value, or whether there is one and how long it is) and
//! the bytes that it refers to. What the function changes comes back in the same places.

use super::plain::plain_size;

/// Bytes to which each part of a buffer is aligned.
pub(super) const UNIT: usize = 16;
/// Most arguments in C that are no floats, and most that are: the latter are passed in registers.
pub(super) const MAX_WORDS: usize = 14;
pub(super) const MAX_FLOATS: usize = 8;

/// A value in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Bool,
    Unsigned(u32),
    Signed(u32),
    Float,
}

impl Scalar {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "bool" => Self::Bool,
            "u8" => Self::Unsigned(8),
            "u16" => Self::Unsigned(16),
            "u32" => Self::Unsigned(32),
            "u64" | "usize" => Self::Unsigned(64),
            "i8" => Self::Signed(8),
            "i16" => Self::Signed(16),
            "i32" => Self::Signed(32),
            "i64" | "isize" => Self::Signed(64),
            "f32" | "f64" => Self::Float,
            _ => return None,
        })
    }

    /// The word as a function in C takes it, of a word of which nothing is known.
    pub(super) fn extended(self, word: u64) -> u64 {
        match self {
            Self::Bool => u64::from(word & 0xff != 0),
            Self::Unsigned(bits) => word << (64 - bits) >> (64 - bits),
            Self::Signed(bits) => (word.cast_signed() << (64 - bits) >> (64 - bits)).cast_unsigned(),
            Self::Float => word,
        }
    }
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Param {
    Value(Scalar),
    /// A pointer to a value of so many bytes.
    Pointer {
        size: usize,
        is_mutable: bool,
        is_optional: bool,
    },
    /// A pointer to elements of so many bytes, and their number.
    Slice {
        size: usize,
        is_str: bool,
        is_mutable: bool,
        is_optional: bool,
    },
    /// The target arguments: those of an interface's method, or of this opaque type.
    Target {
        text: Option<String>,
        is_mutable: bool,
    },
}

/// A result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Nothing, or a word.
    Word,
    Float,
    /// A code, and a value of so many bytes behind an out pointer, which is the last argument.
    Out(usize),
}

/// How the arguments of a function cross.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) params: Vec<Param>,
    pub(super) output: Output,
}

/// Where a part of a buffer lies, and how it is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Of the two words.
    pub(super) head: usize,
    /// Of the bytes.
    pub(super) bytes: usize,
}

impl Place {
    fn at(head: usize) -> Self {
        Self {
            head,
            bytes: head + UNIT,
        }
    }
}

impl Signature {
    /// Of a canonical text.
    ///
    /// # Errors
    /// Why it cannot cross.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        if text.starts_with("static ") {
            return Err("it is a variable".into());
        }
        if text.starts_with("unsafe ") {
            return Err("it is `unsafe`: what runs in another process makes no promises".into());
        }
        let malformed = || "its signature is not known".to_owned();
        let (_, rest) = text.split_once('(').ok_or_else(malformed)?;
        let end = end_of(rest, |c| c == ')').ok_or_else(malformed)?;
        let (params, output) = (&rest[..end], &rest[end + 1..]);
        let params = split(params).into_iter().map(Param::of);
        let signature = Self {
            params: params.collect::<Result<_, _>>()?,
            output: Output::of(output.strip_prefix("->"))?,
        };
        let targets = signature.params.iter().filter_map(|param| match param {
            Param::Target { is_mutable, .. } => Some(is_mutable),
            _ => None,
        });
        if targets.clone().count() > 1 && targets.clone().any(|is_mutable| *is_mutable) {
            return Err("it takes the target arguments twice".into());
        }
        let floats = signature
            .params
            .iter()
            .filter(|param| **param == Param::Value(Scalar::Float))
            .count();
        let words = signature.params.iter().map(|param| match param {
            Param::Value(Scalar::Float) => 0,
            Param::Slice { .. } => 2,
            _ => 1,
        });
        let out = usize::from(matches!(signature.output, Output::Out(1..)));
        if floats > MAX_FLOATS || words.sum::<usize>() + out > MAX_WORDS {
            return Err("it has too many parameters".into());
        }
        Ok(signature)
    }

    /// Where the first parameter lies.
    pub(super) fn first(&self) -> Place {
        let out = match self.output {
            Output::Out(size) => size.next_multiple_of(UNIT),
            Output::Word | Output::Float => 0,
        };
        Place::at(UNIT + out)
    }

    /// Where the parameter lies after one with so many bytes.
    pub(super) fn after(place: Place, bytes: usize) -> Option<Place> {
        let end = place.bytes.checked_add(bytes)?.checked_next_multiple_of(UNIT)?;
        Some(Place::at(end))
    }
}

/// The offset of the first character for which `ends` holds and that is in no brackets.
fn end_of(text: &str, ends: impl Fn(char) -> bool) -> Option<usize> {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if depth == 0 && ends(c) {
            return Some(at);
        }
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            // Of an arrow.
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        before = c;
    }
    None
}

/// The parts between commas that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = end_of(rest, |c| c == ',').unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest.get(end + 1..).unwrap_or("");
    }
    parts
}

/// The argument of `NAME<..>`.
fn argument<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix('<')?.strip_suffix('>')
}

/// The size of values that cross by their bytes.
fn bytes_of(text: &str) -> Result<usize, String> {
    let size = plain_size(text).filter(|size| *size > 0 && !text.contains("atomic "));
    size.ok_or_else(|| {
        format!(
            "`{text}` does not cross: integers, floats, and arrays and structs of those without padding do"
        )
    })
}

impl Param {
    fn of(text: &str) -> Result<Self, String> {
        match text {
            "&self" | "&mut self" => {
                let is_mutable = text.starts_with("&mut");
                return Ok(Self::Target {
                    text: None,
                    is_mutable,
                });
            }
            "..." => return Err("it takes any number of arguments".into()),
            _ => {}
        }
        if let Some(scalar) = Scalar::of(text) {
            return Ok(Self::Value(scalar));
        }
        if holds_owned(text) {
            return Err(OWNED.into());
        }
        let (inner, is_optional) = match argument(text, "Option") {
            Some(inner) if !inner.starts_with('&') => {
                let size = bytes_of(inner)?;
                return Ok(Self::Pointer {
                    size,
                    is_mutable: false,
                    is_optional: true,
                });
            }
            Some(inner) => (inner, true),
            None => (text, false),
        };
        let Some(behind) = inner.strip_prefix('&') else {
            return Err(format!("a parameter is `{text}`; pass a reference to it"));
        };
        let (behind, is_mutable) = match behind.strip_prefix("mut ") {
            Some(behind) => (behind, true),
            None => (behind, false),
        };
        if behind.starts_with("opaque") {
            return match is_optional {
                true => Err(format!("a parameter is `{text}`")),
                false => Ok(Self::Target {
                    text: Some(behind.to_owned()),
                    is_mutable,
                }),
            };
        }
        if behind.starts_with("FnMut(") || behind.starts_with("Fn(") {
            return Err(
                "it calls back, and the ifunc is in another process; help: let it write what it finds to a `&mut` slice".into(),
            );
        }
        if behind == "str" {
            return Ok(Self::Slice {
                size: 1,
                is_str: true,
                is_mutable: false,
                is_optional,
            });
        }
        if let Some(element) = behind
            .strip_prefix('[')
            .and_then(|behind| behind.strip_suffix(']'))
            && plain_size(behind).is_none()
        {
            let size = bytes_of(element)?;
            return Ok(Self::Slice {
                size,
                is_str: false,
                is_mutable,
                is_optional,
            });
        }
        let size = bytes_of(behind)?;
        Ok(Self::Pointer {
            size,
            is_mutable,
            is_optional,
        })
    }
}

/// Why an object of the host that an ifunc holds does not cross.
const OWNED: &str = "an object of the host (`Owned`) does not leave the host; help: let the host keep it, and give the ifunc a number for it";

/// Whether a value is such an object, or may be one.
fn holds_owned(text: &str) -> bool {
    argument(text, "Option").unwrap_or(text).starts_with("owned ")
}

impl Output {
    fn of(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else {
            return Ok(Self::Word);
        };
        if holds_owned(text) {
            return Err(OWNED.into());
        }
        match Scalar::of(text) {
            Some(Scalar::Float) => return Ok(Self::Float),
            Some(_) => return Ok(Self::Word),
            None => {}
        }
        let ok = match (argument(text, "Option"), argument(text, "Result")) {
            (Some(some), _) => some,
            (None, Some(both)) => split(both).first().copied().unwrap_or_default(),
            (None, None) => return Err(format!("it returns `{text}`; write it to a `&mut` parameter")),
        };
        match ok {
            "()" => Ok(Self::Out(0)),
            ok if holds_owned(ok) => Err(OWNED.into()),
            ok if ok.starts_with('&') => Err(format!(
                "it returns `{text}`, which stays in the host; write it to a `&mut` parameter"
            )),
            ok => bytes_of(ok).map(Self::Out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses() {
        let text = "fn put(&mut self,&str,&mut [struct P{0:x:u32,4:y:u32}[8,4]],Option<&[u8]>,&mut [u16;3],Option<u64>,f32,bool)->Result<u64,enum E:i32{A=1}>";
        let signature = Signature::of(text).unwrap();
        let (is_str, is_mutable, is_optional) = (false, false, false);
        let expected = [
            Param::Target {
                text: None,
                is_mutable: true,
            },
            Param::Slice {
                size: 1,
                is_str: true,
                is_mutable,
                is_optional,
            },
            Param::Slice {
                size: 8,
                is_str,
                is_mutable: true,
                is_optional,
            },
            Param::Slice {
                size: 1,
                is_str,
                is_mutable,
                is_optional: true,
            },
            Param::Pointer {
                size: 6,
                is_mutable: true,
                is_optional,
            },
            Param::Pointer {
                size: 8,
                is_mutable,
                is_optional: true,
            },
            Param::Value(Scalar::Float),
            Param::Value(Scalar::Bool),
        ];
        assert_eq!(signature.params, expected);
        assert_eq!(signature.output, Output::Out(8));
        assert_eq!(signature.first(), Place { head: 32, bytes: 48 });
        assert_eq!(Signature::after(Place::at(32), 17), Some(Place::at(80)));
        assert_eq!(Signature::after(Place::at(32), usize::MAX - 40), None);
        let nothing = Signature::of("fn f()").unwrap();
        assert_eq!((nothing.params.len(), nothing.output), (0, Output::Word));
        let store = Signature::of("fn get(&opaque store/1,u8)->Option<f64>").unwrap();
        let text = Some("opaque store/1".to_owned());
        assert_eq!(
            store.params[0],
            Param::Target {
                text,
                is_mutable: false
            }
        );
        assert_eq!(store.output, Output::Out(8));
        assert_eq!(Signature::of("fn f(i16)->f32").unwrap().output, Output::Float);
    }

    #[test]
    fn what_does_not_cross_has_a_reason() {
        for (text, part) in [
            ("unsafe fn f()", "`unsafe`"),
            ("static F:u64", "a variable"),
            ("fn f(*const void)", "`*const void`"),
            (
                "fn f(&mut FnMut(&[u8],u8)->ControlFlow<()>)",
                "it calls back, and the ifunc is in another process; help: ",
            ),
            (
                "fn f(owned opaque db)",
                "(`Owned`) does not leave the host; help: ",
            ),
            ("fn f()->owned opaque db", "(`Owned`) does not leave"),
            ("fn f(Option<owned opaque db>)", "(`Owned`) does not leave"),
            ("fn f()->Result<owned opaque db,i32>", "(`Owned`) does not leave"),
            ("fn f(&opaque a)->&[u8]", "`&[u8]`; write"),
            ("fn f()->Result<&str,i32>", "stays in the host"),
            ("fn f()->Option<owned opaque db>", "(`Owned`) does not leave"),
            ("fn f(struct P{0:x:u32}[4,4])", "pass a reference"),
            ("fn f(&bool)", "`bool` does not cross"),
            ("fn f(&atomic u64)", "does not cross"),
            ("fn f(&[()])", "does not cross"),
            ("fn f(u8,...)", "any number"),
            ("fn f(&opaque a,&mut opaque a)", "twice"),
            ("fn f(u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8)", "too many"),
            ("f", "not known"),
            ("fn f(u8", "not known"),
        ] {
            let why = Signature::of(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn words_are_extended_as_c_does() {
        assert_eq!(Scalar::Unsigned(8).extended(0xffff_ff80), 0x80);
        assert_eq!(Scalar::Signed(8).extended(0x80), u64::MAX - 0x7f);
        assert_eq!(Scalar::Signed(64).extended(u64::MAX), u64::MAX);
        assert_eq!(Scalar::Bool.extended(0x102), 1);
        assert_eq!(Scalar::Bool.extended(0x100), 0);
    }

    #[test]
    fn scalars_have_their_widths() {
        use Scalar::{Bool, Float, Signed, Unsigned};
        for (text, scalar) in [
            ("bool", Bool),
            ("u8", Unsigned(8)),
            ("u16", Unsigned(16)),
            ("u32", Unsigned(32)),
            ("u64", Unsigned(64)),
            ("usize", Unsigned(64)),
            ("i8", Signed(8)),
            ("i16", Signed(16)),
            ("i32", Signed(32)),
            ("i64", Signed(64)),
            ("isize", Signed(64)),
            ("f32", Float),
            ("f64", Float),
        ] {
            assert_eq!(Scalar::of(text), Some(scalar), "{text}");
        }
        assert_eq!(Scalar::of("u128"), None);
    }

    #[test]
    fn the_number_of_parameters_is_bounded_by_registers() {
        let crosses = |word: usize, slice: usize, float: usize, output: &str| {
            let params = ["u64"].repeat(word).into_iter();
            let params = params.chain(["&[u8]"].repeat(slice)).chain(["f64"].repeat(float));
            let text = format!("fn f({}){output}", params.collect::<Vec<_>>().join(","));
            Signature::of(&text).is_ok()
        };
        let out = "->Option<u64>";
        assert!(crosses(MAX_WORDS, 0, MAX_FLOATS, "") && !crosses(MAX_WORDS + 1, 0, 0, ""));
        assert!(!crosses(0, 0, MAX_FLOATS + 1, ""));
        assert!(crosses(MAX_WORDS - 1, 0, 0, out) && !crosses(MAX_WORDS, 0, 0, out));
        let (pairs, rest) = (MAX_WORDS / 2, MAX_WORDS % 2);
        assert!(crosses(rest, pairs, 0, "") && !crosses(rest + 1, pairs, 0, ""));
    }
}
