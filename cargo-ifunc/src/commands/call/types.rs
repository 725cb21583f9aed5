//! Types, as the texts of an ifunc's library describe them (`ifunc_abi::text`).

use std::fmt;

/// How a payload or an answer becomes bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Codec {
    /// The bytes themselves.
    RawBytes,
    /// UTF-8.
    RawStr,
    /// serde, by postcard.
    Postcard(Type),
    /// Fixed layouts, and tuples, `Option` and `Vec` of them, one after the other.
    Fixed(Type),
    /// The lengths of several parts, then the parts at their alignments.
    Parts(Vec<Type>),
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Unit,
    Bool,
    Char,
    Integer(Integer),
    F32,
    F64,
    Str,
    Bytes,
    Array(Box<Type>, usize),
    /// `[T]`: a list that serde writes, or, of fixed layout, elements up to the end.
    List(Box<Type>),
    /// `Vec<T>` of fixed layout: a number of elements, then the elements.
    Counted(Box<Type>),
    Option(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Tuple(Vec<Type>),
    Struct(Struct),
    Enum(Enum),
    /// A struct of fixed layout.
    Layout(Layout),
    /// An enum of fixed layout.
    Numbers(Numbers),
    /// Internet addresses, which serde writes as their bytes.
    Address(Address),
    /// The type around it of this name.
    Outer(String),
    /// A type that states its name alone.
    Unknown(String),
}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    pub(super) name: &'static str,
    pub(super) is_signed: bool,
    /// Bytes in memory; those of a pointer are 8.
    pub(super) size: usize,
}

/// A struct that serde writes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Fields,
}

/// The fields of a struct or of a variant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fields {
    Unit,
    Unnamed(Vec<Type>),
    Named(Vec<(String, Type)>),
}

/// An enum that serde writes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) variants: Vec<(String, Fields)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) name: String,
    /// Offset, name, type.
    pub(super) fields: Vec<(usize, String, Type)>,
    pub(super) size: usize,
    pub(super) align: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Numbers {
    pub(super) name: String,
    pub(super) repr: Integer,
    pub(super) variants: Vec<(String, i128)>,
    pub(super) size: usize,
    pub(super) align: usize,
}

/// An internet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    V4,
    V6,
    Ip,
    SocketV4,
    SocketV6,
    Socket,
}

/// A text that this command does not understand.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadText {
    /// Where in the text.
    pub(super) at: usize,
}

/// Depth of nesting that a text may have.
const MAX_DEPTH: u32 = 128;

const fn integer(name: &'static str, is_signed: bool, size: usize) -> (&'static str, Type) {
    (
        name,
        Type::Integer(Integer {
            name,
            is_signed,
            size,
        }),
    )
}

static PRIMITIVES: [(&str, Type); 24] = [
    ("bool", Type::Bool),
    ("char", Type::Char),
    integer("u8", false, 1),
    integer("u16", false, 2),
    integer("u32", false, 4),
    integer("u64", false, 8),
    integer("u128", false, 16),
    integer("usize", false, 8),
    integer("i8", true, 1),
    integer("i16", true, 2),
    integer("i32", true, 4),
    integer("i64", true, 8),
    integer("i128", true, 16),
    integer("isize", true, 8),
    ("f32", Type::F32),
    ("f64", Type::F64),
    ("str", Type::Str),
    ("bytes", Type::Bytes),
    ("Ipv4Addr", Type::Address(Address::V4)),
    ("Ipv6Addr", Type::Address(Address::V6)),
    ("IpAddr", Type::Address(Address::Ip)),
    ("SocketAddrV4", Type::Address(Address::SocketV4)),
    ("SocketAddrV6", Type::Address(Address::SocketV6)),
    ("SocketAddr", Type::Address(Address::Socket)),
];

fn primitive(name: &str) -> Option<Type> {
    let known = PRIMITIVES.iter().find(|(known, _)| *known == name);
    known.map(|(_, ty)| ty.clone())
}

/// The types of `core` and `std` that serde writes as structs of two integers.
fn time(name: &str) -> Option<Type> {
    let fields = match name {
        "Duration" => ["secs", "nanos"],
        "SystemTime" => ["secs_since_epoch", "nanos_since_epoch"],
        _ => return None,
    };
    let types = ["u64", "u32"].into_iter().filter_map(primitive);
    let fields = fields.into_iter().map(Into::into).zip(types).collect();
    Some(Type::Struct(Struct {
        name: name.to_owned(),
        fields: Fields::Named(fields),
    }))
}

impl Codec {
    /// The codec and the type of a payload or an answer.
    pub(super) fn parse(text: &str) -> Result<Self, BadText> {
        match text {
            "raw bytes" => return Ok(Self::RawBytes),
            "raw str" => return Ok(Self::RawStr),
            _ => {}
        }
        let mut parser = Parser {
            text,
            at: 0,
            depth: 0,
        };
        let codec = if parser.skip("postcard ") {
            Self::Postcard(parser.ty()?)
        } else if parser.skip("parts(") {
            Self::Parts(parser.types(")")?)
        } else {
            Self::Fixed(parser.ty()?)
        };
        match parser.at == text.len() {
            true => Ok(codec),
            false => Err(parser.bad()),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn bad(&self) -> BadText {
        BadText { at: self.at }
    }

    fn skip(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), BadText> {
        match self.skip(token) {
            true => Ok(()),
            false => Err(self.bad()),
        }
    }

    /// What stands before the next character of `ends`.
    fn until(&mut self, ends: &[char]) -> &'a str {
        let rest = self.rest();
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// A name: of a field, a variant or a type.
    fn name(&mut self) -> Result<&'a str, BadText> {
        let before = self.at;
        loop {
            self.until(&['{', '}', '[', ']', '(', ')', '<', '>', ',', ':', ';', '=']);
            // Names of types may be paths.
            if !self.skip("::") {
                break;
            }
        }
        match &self.text[before..self.at] {
            "" => Err(self.bad()),
            name => Ok(name),
        }
    }

    fn number<N: std::str::FromStr>(&mut self) -> Result<N, BadText> {
        let before = self.at;
        self.skip("-");
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        self.at += digits;
        self.text[before..self.at]
            .parse()
            .map_err(|_| BadText { at: before })
    }

    /// Types separated by commas, up to `end`.
    fn types(&mut self, end: &str) -> Result<Vec<Type>, BadText> {
        let mut types = Vec::new();
        while !self.skip(end) {
            if !types.is_empty() {
                self.expect(",")?;
            }
            types.push(self.ty()?);
        }
        Ok(types)
    }

    fn ty(&mut self) -> Result<Type, BadText> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.bad());
        }
        let ty = self.ty_within()?;
        self.depth -= 1;
        Ok(ty)
    }

    fn ty_within(&mut self) -> Result<Type, BadText> {
        if self.skip("(") {
            let types = self.types(")")?;
            return Ok(if types.is_empty() {
                Type::Unit
            } else {
                Type::Tuple(types)
            });
        }
        if self.skip("[") {
            let element = Box::new(self.ty()?);
            if self.skip(";") {
                let count = self.number()?;
                self.expect("]")?;
                return Ok(Type::Array(element, count));
            }
            self.expect("]")?;
            return Ok(Type::List(element));
        }
        if self.skip("{") {
            let key = Box::new(self.ty()?);
            self.expect(":")?;
            let value = Box::new(self.ty()?);
            self.expect("}")?;
            return Ok(Type::Map(key, value));
        }
        if self.skip("^") {
            return self.by_name();
        }
        if self.skip("struct ") {
            return self.structure();
        }
        if self.skip("enum ") {
            return self.enumeration();
        }
        let name = self.name()?;
        if let Some(ty) = primitive(name).or_else(|| time(name)) {
            return Ok(ty);
        }
        match (name, self.skip("<")) {
            (_, false) => Ok(Type::Unknown(name.to_owned())),
            ("Option", true) => self.argument(Type::Option),
            ("Vec", true) => self.argument(Type::Counted),
            ("Result", true) => self.result(),
            _ => Err(self.bad()),
        }
    }

    /// The only argument of a generic type.
    fn argument(&mut self, make: impl FnOnce(Box<Type>) -> Type) -> Result<Type, BadText> {
        let [only]: [Type; 1] = self.types(">")?.try_into().map_err(|_| self.bad())?;
        Ok(make(Box::new(only)))
    }

    fn result(&mut self) -> Result<Type, BadText> {
        let types: [Type; 2] = self.types(">")?.try_into().map_err(|_| self.bad())?;
        let variants = ["Ok", "Err"].into_iter().map(Into::into);
        let fields = types.into_iter().map(|ty| Fields::Unnamed(vec![ty]));
        Ok(Type::Enum(Enum {
            name: "Result".to_owned(),
            variants: variants.zip(fields).collect(),
        }))
    }

    /// A type that is written as in Rust.
    fn by_name(&mut self) -> Result<Type, BadText> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.bad());
        }
        let path = self.name()?;
        let name = path.rsplit("::").next().unwrap_or(path).trim();
        let mut types = Vec::new();
        if self.skip("<") {
            while !self.skip(">") {
                if !types.is_empty() {
                    self.expect(",")?;
                    self.skip(" ");
                }
                types.push(Box::new(self.by_name()?));
            }
        }
        self.depth -= 1;
        let of = types.len();
        let mut types = types.into_iter();
        Ok(match (name, of, types.next(), types.next()) {
            ("String", 0, ..) => Type::Str,
            ("Box" | "Rc" | "Arc", 1, Some(ty), _) => *ty,
            ("Vec" | "VecDeque" | "BTreeSet", 1, Some(ty), _) => Type::List(ty),
            ("Option", 1, Some(ty), _) => Type::Option(ty),
            ("BTreeMap", 2, Some(key), Some(value)) => Type::Map(key, value),
            (name, ..) => primitive(name)
                .or_else(|| time(name))
                .unwrap_or_else(|| Type::Outer(name.to_owned())),
        })
    }

    /// Skips the parameters of a generic type, which its fields show.
    fn skip_parameters(&mut self) {
        let mut depth = 0_usize;
        let rest = self.rest();
        for (at, c) in rest.char_indices() {
            match c {
                '<' => depth += 1,
                '>' if depth > 0 => depth -= 1,
                _ if depth == 0 => {
                    self.at += at;
                    return;
                }
                _ => {}
            }
        }
        self.at += rest.len();
    }

    fn structure(&mut self) -> Result<Type, BadText> {
        let name = self.name()?.to_owned();
        self.skip_parameters();
        if self.skip("(") {
            let fields = Fields::Unnamed(self.types(")")?);
            return Ok(Type::Struct(Struct { name, fields }));
        }
        if !self.skip("{") {
            let fields = Fields::Unit;
            return Ok(Type::Struct(Struct { name, fields }));
        }
        // Fields of a fixed layout begin with their offsets; its size follows.
        let is_layout =
            self.rest().starts_with(|c: char| c.is_ascii_digit()) || self.rest().starts_with("}[");
        if !is_layout {
            let fields = Fields::Named(self.named()?);
            return Ok(Type::Struct(Struct { name, fields }));
        }
        let mut fields = Vec::new();
        while !self.skip("}") {
            if !fields.is_empty() {
                self.expect(",")?;
            }
            let offset = self.number()?;
            self.expect(":")?;
            let field = self.name()?.to_owned();
            self.expect(":")?;
            fields.push((offset, field, self.ty()?));
        }
        let (size, align) = self.size()?;
        let fits = |(offset, _, ty): &(usize, String, Type)| {
            let end = ty.size().and_then(|len| offset.checked_add(len));
            end.is_some_and(|end| end <= size)
        };
        match fields.iter().all(fits) {
            true => Ok(Type::Layout(Layout {
                name,
                fields,
                size,
                align,
            })),
            false => Err(self.bad()),
        }
    }

    /// Fields with names, up to the brace.
    fn named(&mut self) -> Result<Vec<(String, Type)>, BadText> {
        let mut fields = Vec::new();
        while !self.skip("}") {
            if !fields.is_empty() {
                self.expect(",")?;
            }
            let name = self.name()?.to_owned();
            self.expect(":")?;
            fields.push((name, self.ty()?));
        }
        Ok(fields)
    }

    fn enumeration(&mut self) -> Result<Type, BadText> {
        let name = self.name()?.to_owned();
        if self.skip(":") {
            let repr = match primitive(self.name()?) {
                Some(Type::Integer(repr)) => repr,
                _ => return Err(self.bad()),
            };
            self.expect("{")?;
            let mut variants = Vec::new();
            while !self.skip("}") {
                if !variants.is_empty() {
                    self.expect(",")?;
                }
                let variant = self.name()?.to_owned();
                self.expect("=")?;
                variants.push((variant, self.number()?));
            }
            let (size, align) = self.size()?;
            return match size >= repr.size {
                true => Ok(Type::Numbers(Numbers {
                    name,
                    repr,
                    variants,
                    size,
                    align,
                })),
                false => Err(self.bad()),
            };
        }
        self.skip_parameters();
        self.expect("{")?;
        let mut variants = Vec::new();
        while !self.skip("}") {
            if !variants.is_empty() {
                self.expect(",")?;
            }
            let variant = self.name()?.to_owned();
            let fields = if self.skip("(") {
                Fields::Unnamed(self.types(")")?)
            } else if self.skip("{") {
                Fields::Named(self.named()?)
            } else {
                Fields::Unit
            };
            variants.push((variant, fields));
        }
        Ok(Type::Enum(Enum { name, variants }))
    }

    /// `[size,align]` of a fixed layout.
    fn size(&mut self) -> Result<(usize, usize), BadText> {
        self.expect("[")?;
        let size = self.number()?;
        self.expect(",")?;
        let align: usize = self.number()?;
        self.expect("]")?;
        match align.is_power_of_two() {
            true => Ok((size, align)),
            false => Err(self.bad()),
        }
    }
}

impl Type {
    /// Bytes of a value of fixed layout in memory; `None` if the type has none.
    pub(super) fn size(&self) -> Option<usize> {
        Some(match self {
            Self::Unit => 0,
            Self::Bool => 1,
            Self::Char | Self::F32 => 4,
            Self::F64 => 8,
            Self::Integer(integer) => integer.size,
            Self::Array(element, count) => element.size()?.checked_mul(*count)?,
            Self::Layout(layout) => layout.size,
            Self::Numbers(numbers) => numbers.size,
            _ => return None,
        })
    }

    /// Alignment of a part of a payload.
    pub(super) fn align(&self) -> usize {
        match self {
            Self::Array(element, _) | Self::List(element) => element.align(),
            Self::Layout(Layout { align, .. }) | Self::Numbers(Numbers { align, .. }) => *align,
            _ => self.size().unwrap_or(1).max(1),
        }
    }

    /// The name by which a type inside of it refers to it.
    pub(super) fn own_name(&self) -> Option<&str> {
        match self {
            Self::Struct(Struct { name, .. }) | Self::Enum(Enum { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// Whether it is a byte, of which lists are bytes.
    pub(super) fn is_byte(&self) -> bool {
        matches!(self, Self::Integer(integer) if integer.name == "u8")
    }
}

impl Layout {
    /// Whether its fields have numbers for names.
    pub(super) fn is_tuple(&self) -> bool {
        let mut names = self.fields.iter().map(|(_, name, _)| name).enumerate();
        !self.fields.is_empty() && names.all(|(index, name)| *name == index.to_string())
    }
}

/// What JSON stands for a value.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit => f.write_str("null"),
            Self::Bool => f.write_str("true or false"),
            Self::Char => f.write_str("a string of one character"),
            Self::Integer(integer) => write!(f, "an integer ({})", integer.name),
            Self::F32 => f.write_str("a number (f32)"),
            Self::F64 => f.write_str("a number (f64)"),
            Self::Str => f.write_str("a string"),
            Self::Bytes => f.write_str("bytes: a string, a list of numbers or {\"hex\": \"..\"}"),
            Self::Array(element, count) => write!(f, "a list of {count}, each {element}"),
            Self::List(element) | Self::Counted(element) => write!(f, "a list, each {element}"),
            Self::Option(inner) => write!(f, "null, or {inner}"),
            Self::Map(key, value) => write!(f, "a map from {key} to {value}"),
            Self::Tuple(types) => write!(f, "a list of {}", types.len()),
            Self::Struct(Struct { name, fields }) => match fields {
                Fields::Unit => write!(f, "null (struct {name})"),
                Fields::Unnamed(types) => match &types[..] {
                    [only] => only.fmt(f),
                    several => write!(f, "a list of {} (struct {name})", several.len()),
                },
                Fields::Named(fields) => {
                    write!(
                        f,
                        "an object with {} (struct {name})",
                        names(fields.iter().map(|(n, _)| n))
                    )
                }
            },
            Self::Enum(Enum { name, variants }) => {
                write!(
                    f,
                    "one of {} (enum {name})",
                    names(variants.iter().map(|(n, _)| n))
                )
            }
            Self::Layout(Layout { name, fields, .. }) => {
                write!(
                    f,
                    "an object with {} (struct {name})",
                    names(fields.iter().map(|(_, n, _)| n))
                )
            }
            Self::Numbers(Numbers { name, variants, .. }) => {
                write!(
                    f,
                    "one of {} (enum {name})",
                    names(variants.iter().map(|(n, _)| n))
                )
            }
            Self::Address(address) => f.write_str(match address {
                Address::V4 => "a string such as \"127.0.0.1\"",
                Address::V6 => "a string such as \"::1\"",
                Address::Ip => "a string such as \"127.0.0.1\" or \"::1\"",
                Address::SocketV4 => "a string such as \"127.0.0.1:80\"",
                Address::SocketV6 => "a string such as \"[::1]:80\"",
                Address::Socket => "a string such as \"127.0.0.1:80\" or \"[::1]:80\"",
            }),
            Self::Outer(name) => write!(f, "`{name}`"),
            Self::Unknown(name) => write!(f, "`{name}`, which states no more than its name"),
        }
    }
}

/// `a`, `b` and `c`, in code quotes.
pub(super) fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "nothing".to_owned(),
        false => names.join(", "),
    }
}
