//! Functions of the host that ifuncs in a runner process may call: how their arguments cross, by the canonical text of the signature.
//!
//! A call crosses as a *buffer*, whose layout both sides compute from the text: the result, the memory behind an out pointer, and then
//! each parameter, at multiples of 16 bytes. A parameter has two words (its value, or whether there is one and how long it is) and
//! the bytes that it refers to. What the function changes comes back in the same places.
//!
//! A call of a callback crosses the other way, as a buffer of the callback's own signature.

use super::plain::plain_size;

/// Bytes to which each part of a buffer is aligned.
pub(super) const UNIT: usize = 16;
/// Most arguments in C that are no floats, and most that are: the latter are passed in registers.
pub(super) const MAX_WORDS: usize = 14;
pub(super) const MAX_FLOATS: usize = 8;
/// Most parameters: each takes a register or a word at least.
pub(super) const MAX_PARAMS: usize = MAX_WORDS + MAX_FLOATS;

/// A value in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Bool,
    Unsigned(u32),
    Signed(u32),
    Float(u32),
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
            "f32" => Self::Float(32),
            "f64" => Self::Float(64),
            _ => return None,
        })
    }

    /// The word as a function in C takes it, of a word of which nothing is known.
    pub(super) fn extended(self, word: u64) -> u64 {
        match self {
            Self::Bool => u64::from(word & 0xff != 0),
            Self::Unsigned(bits) | Self::Float(bits) => word << (64 - bits) >> (64 - bits),
            Self::Signed(bits) => (word.cast_signed() << (64 - bits) >> (64 - bits)).cast_unsigned(),
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
    /// The target arguments of an interface's method; or of this opaque type: the target arguments, or an object that the ifunc holds.
    Target {
        text: Option<String>,
        is_mutable: bool,
    },
    /// An object that the ifunc gives up: of this opaque type, or of any.
    Owned(Option<String>),
    /// A function of the ifunc and its data.
    Callback(Box<Signature>),
}

/// A result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Nothing,
    Word(Scalar),
    /// Of so many bits.
    Float(u32),
    /// The code of an `Option` or a `Result`, and a value of so many bytes behind an out pointer, which is the last argument.
    Out {
        len: usize,
        is_option: bool,
    },
    /// An object of this opaque type, which the ifunc holds from then on.
    Owned(String),
    /// Such a code, and such an object behind an out pointer.
    OutOwned {
        text: String,
        is_option: bool,
    },
}

impl Output {
    /// Bytes behind the out pointer; 0: there is no such argument.
    pub(super) fn out_len(&self) -> usize {
        match self {
            Self::Out { len, .. } => *len,
            Self::OutOwned { .. } => size_of::<usize>(),
            Self::Nothing | Self::Word(_) | Self::Float(_) | Self::Owned(_) => 0,
        }
    }

    /// The result of a function that left this word in the register: without what the other bits of the register hold.
    pub(super) fn result(&self, word: u64) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Word(scalar) => scalar.extended(word),
            Self::Float(bits) => Scalar::Unsigned(*bits).extended(word),
            Self::Out { is_option, .. } | Self::OutOwned { is_option, .. } => {
                Scalar::Unsigned(if *is_option { 8 } else { 32 }).extended(word)
            }
            Self::Owned(_) => word,
        }
    }

    /// Whether a function that returned this has written what is behind its out pointer.
    pub(super) fn has_written(&self, result: u64) -> bool {
        match self {
            Self::Out { is_option, .. } | Self::OutOwned { is_option, .. } => (result != 0) == *is_option,
            _ => false,
        }
    }

    /// Whether the function returns an object.
    pub(super) fn is_object(&self) -> bool {
        matches!(self, Self::Owned(_) | Self::OutOwned { .. })
    }
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
        signature.check(0)?;
        Ok(signature)
    }

    /// Of a callback, from the text after its opening bracket.
    ///
    /// # Errors
    /// Why it cannot cross.
    fn of_callback(text: &str) -> Result<Self, String> {
        let end = end_of(text, |c| c == ')').ok_or("its signature is not known")?;
        let params = split(&text[..end]).into_iter().map(Param::of_callback);
        let signature = Self {
            params: params.collect::<Result<_, _>>()?,
            output: match text[end + 1..].strip_prefix("->") {
                None => Output::Nothing,
                Some("ControlFlow<()>") => Output::Word(Scalar::Unsigned(8)),
                Some(output) => argument(output, "Option")
                    .ok_or_else(|| format!("a callback returns `{output}`"))
                    .and_then(bytes_of)
                    .map(|len| Output::Out { len, is_option: true })?,
            },
        };
        // The first argument is its data.
        signature.check(1)?;
        Ok(signature)
    }

    /// Whether a function can be called with its arguments, and so many words before them.
    fn check(&self, before: usize) -> Result<(), String> {
        let is_float = |param: &&Param| matches!(param, Param::Value(Scalar::Float(_)));
        let floats = self.params.iter().filter(is_float).count();
        let words = self.params.iter().map(|param| match param {
            Param::Value(Scalar::Float(_)) => 0,
            Param::Slice { .. } | Param::Callback(_) => 2,
            _ => 1,
        });
        let words = before + words.sum::<usize>() + usize::from(self.output.out_len() > 0);
        if floats > MAX_FLOATS || words > MAX_WORDS {
            return Err("it has too many parameters".into());
        }
        Ok(())
    }

    /// Where the first parameter lies.
    pub(super) fn first(&self) -> Place {
        Place::at(UNIT + self.output.out_len().next_multiple_of(UNIT))
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
    /// A parameter of a callback.
    fn of_callback(text: &str) -> Result<Self, String> {
        match Self::of(text)? {
            Self::Callback(_) => Err("its callback is given a callback".into()),
            param => Ok(param),
        }
    }

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
        if text == ANY_OBJECT {
            return Ok(Self::Owned(None));
        }
        if let Some(object) = text.strip_prefix("owned ") {
            return opaque(object).map(Some).map(Self::Owned);
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
        if let Some(callback) = behind
            .strip_prefix("FnMut(")
            .or_else(|| behind.strip_prefix("Fn("))
        {
            return Signature::of_callback(callback).map(Box::new).map(Self::Callback);
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

/// The type of an object that an ifunc may hold: it has no bytes there.
fn opaque(text: &str) -> Result<String, String> {
    match text.starts_with("opaque") {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`owned {text}` does not cross: help: `#[derive(Opaque)]` on its type"
        )),
    }
}

/// The text of an object of any type, as a parameter.
pub(super) const ANY_OBJECT: &str = "owned";

impl Output {
    fn of(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else {
            return Ok(Self::Nothing);
        };
        if let Some(object) = text.strip_prefix("owned ") {
            return opaque(object).map(Self::Owned);
        }
        match (text, Scalar::of(text)) {
            ("f32", _) => return Ok(Self::Float(32)),
            ("f64", _) => return Ok(Self::Float(64)),
            (_, Some(scalar)) => return Ok(Self::Word(scalar)),
            (_, None) => {}
        }
        let (ok, is_option) = match (argument(text, "Option"), argument(text, "Result")) {
            (Some(some), _) => (some, true),
            (None, Some(both)) => (split(both).first().copied().unwrap_or_default(), false),
            (None, None) => return Err(format!("it returns `{text}`; write it to a `&mut` parameter")),
        };
        match (ok, ok.strip_prefix("owned ")) {
            ("()", _) => Ok(Self::Out { len: 0, is_option }),
            (_, Some(object)) => opaque(object).map(|text| Self::OutOwned { text, is_option }),
            (ok, None) if ok.starts_with('&') => Err(format!(
                "it returns `{text}`, which stays in the host; write it to a `&mut` parameter"
            )),
            (ok, None) => bytes_of(ok).map(|len| Self::Out { len, is_option }),
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
            Param::Value(Scalar::Float(32)),
            Param::Value(Scalar::Bool),
        ];
        assert_eq!(signature.params, expected);
        let out = |len, is_option| Output::Out { len, is_option };
        assert_eq!(signature.output, out(8, false));
        assert_eq!(signature.first(), Place { head: 32, bytes: 48 });
        assert_eq!(Signature::after(Place::at(32), 17), Some(Place::at(80)));
        assert_eq!(Signature::after(Place::at(32), usize::MAX - 40), None);
        let nothing = Signature::of("fn f()").unwrap();
        assert_eq!((nothing.params.len(), nothing.output), (0, Output::Nothing));
        let store = Signature::of("fn get(&opaque store/1,u8)->Option<f64>").unwrap();
        let text = Some("opaque store/1".to_owned());
        assert_eq!(
            store.params[0],
            Param::Target {
                text,
                is_mutable: false
            }
        );
        assert_eq!(store.output, out(8, true));
    }

    #[test]
    fn of_a_result_no_bits_cross_but_its_own() {
        let result = |text: &str| Signature::of(text).unwrap().output.result(u64::MAX - 1);
        for (text, expected) in [
            ("fn f()", 0),
            ("fn f()->bool", 1),
            ("fn f()->u8", 0xfe),
            ("fn f()->i16", u64::MAX - 1),
            ("fn f()->u64", u64::MAX - 1),
            ("fn f()->f32", 0xffff_fffe),
            ("fn f()->f64", u64::MAX - 1),
            ("fn f()->Option<u64>", 0xfe),
            ("fn f()->Result<(),i32>", 0xffff_fffe),
        ] {
            assert_eq!(result(text), expected, "{text}");
        }
    }

    #[test]
    fn callbacks_cross_by_signatures_of_their_own() {
        let text = "fn Kv_scan(&self,&[u8],&mut FnMut(&[u8],&[u8])->ControlFlow<()>,&Fn(f64,&mut [u16;2])->Option<u32>)";
        let signature = Signature::of(text).unwrap();
        let [_, _, Param::Callback(each), Param::Callback(with)] = &signature.params[..] else {
            panic!("{signature:?}");
        };
        let bytes = Param::Slice {
            size: 1,
            is_str: false,
            is_mutable: false,
            is_optional: false,
        };
        assert_eq!(each.params, [bytes.clone(), bytes]);
        assert_eq!(each.output, Output::Word(Scalar::Unsigned(8)));
        assert_eq!(with.params.len(), 2);
        let (len, is_option) = (4, true);
        assert_eq!(with.output, Output::Out { len, is_option });
        // Two words each, and the data of the callback is a word of its own.
        assert!(Signature::of("fn f(&Fn(),&Fn(),&Fn(),&Fn(),&Fn(),&Fn(),&Fn())").is_ok());
        assert!(Signature::of("fn f(&Fn(),&Fn(),&Fn(),&Fn(),&Fn(),&Fn(),&Fn(),u8)").is_err());
        assert!(Signature::of("fn f(&Fn(u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8))").is_ok());
    }

    #[test]
    fn objects_cross_by_their_types() {
        let text = "fn open(&opaque db,owned opaque a)->Result<owned opaque b,i32>";
        let signature = Signature::of(text).unwrap();
        assert_eq!(signature.params[1], Param::Owned(Some("opaque a".into())));
        let output = |is_option| Output::OutOwned {
            text: "opaque b".into(),
            is_option,
        };
        assert_eq!(signature.output, output(false));
        assert_eq!(signature.first(), Place { head: 32, bytes: 48 });
        let optional = Signature::of("fn open()->Option<owned opaque b>").unwrap();
        assert_eq!(optional.output, output(true));
        let plain = Signature::of("fn open()->owned opaque b").unwrap();
        assert_eq!(plain.output, Output::Owned("opaque b".into()));
        assert!(plain.output.is_object() && !Output::Nothing.is_object());
        let release = Signature::of("fn release(owned)").unwrap();
        assert_eq!(release.params, [Param::Owned(None)]);
    }

    #[test]
    fn what_does_not_cross_has_a_reason() {
        for (text, part) in [
            ("unsafe fn f()", "`unsafe`"),
            ("static F:u64", "a variable"),
            ("fn f(*const void)", "`*const void`"),
            ("fn f(&Fn(&mut FnMut()))", "its callback is given a callback"),
            ("fn f(&Fn(owned u64))", "`owned u64` does not cross"),
            ("fn f(&Fn(struct P{0:x:u32}[4,4]))", "pass a reference"),
            ("fn f(&Fn()->u64)", "a callback returns `u64`"),
            ("fn f(&Fn()->Option<bool>)", "`bool` does not cross"),
            ("fn f(&Fn(u8", "not known"),
            ("fn f(&Fn(u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8,u8))", "too many"),
            (
                "fn f(Option<owned opaque db>)",
                "`owned opaque db` does not cross",
            ),
            ("fn f(owned u64)", "`owned u64` does not cross"),
            ("fn f()->Option<owned u64>", "`owned u64` does not cross"),
            ("fn f(&opaque a)->&[u8]", "`&[u8]`; write"),
            ("fn f()->Result<&str,i32>", "stays in the host"),
            ("fn f(struct P{0:x:u32}[4,4])", "pass a reference"),
            ("fn f(&bool)", "`bool` does not cross"),
            ("fn f(&atomic u64)", "does not cross"),
            ("fn f(&[()])", "does not cross"),
            ("fn f(u8,...)", "any number"),
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
            ("f32", Float(32)),
            ("f64", Float(64)),
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
