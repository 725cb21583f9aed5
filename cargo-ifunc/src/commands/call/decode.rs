//! The bytes of an answer → JSON.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use super::types::{Address, Codec, Enum, Fields, Integer, Layout, Numbers, Type};

/// Bytes that are no value of their type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotOfType;

/// Depth of nesting that an answer may have.
const MAX_DEPTH: u32 = 256;
/// Elements without bytes that an answer may have: nothing else bounds their number.
const MAX_EMPTY: usize = 1 << 16;

/// JSON of a value, in one line; `None`: the type has no values but one, or there are no bytes of a raw answer.
pub(super) fn decode(codec: &Codec, bytes: &[u8]) -> Result<Option<String>, NotOfType> {
    let mut decoder = Decoder {
        bytes,
        json: String::new(),
        outer: Vec::new(),
        depth: 0,
        empty: 0,
    };
    match codec {
        Codec::RawBytes if bytes.is_empty() => return Ok(None),
        Codec::Postcard(Type::Unit) | Codec::Fixed(Type::Unit) if bytes.is_empty() => return Ok(None),
        Codec::RawBytes => decoder.raw(bytes),
        Codec::RawStr => decoder.string(bytes)?,
        Codec::Postcard(ty) => decoder.postcard(ty)?,
        Codec::Fixed(ty) => decoder.fixed(ty)?,
        // Only payloads have parts.
        Codec::Parts(_) => return Err(NotOfType),
    }
    match (codec, decoder.bytes) {
        (Codec::RawBytes | Codec::RawStr, _) | (_, []) => Ok(Some(decoder.json)),
        _ => Err(NotOfType),
    }
}

struct Decoder<'a> {
    /// What is left.
    bytes: &'a [u8],
    json: String,
    /// The types around the current value that have a name.
    outer: Vec<&'a Type>,
    depth: u32,
    /// Elements that had no bytes.
    empty: usize,
}

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], NotOfType> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(NotOfType)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NotOfType> {
        self.take(N)?.try_into().map_err(|_| NotOfType)
    }

    fn push(&mut self, text: impl std::fmt::Display) {
        use std::fmt::Write as _;
        // A `String` takes everything.
        let _ = write!(self.json, "{text}");
    }

    fn quoted(&mut self, text: &str) {
        self.push(serde_json::Value::from(text));
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), NotOfType> {
        let text = std::str::from_utf8(bytes).map_err(|_| NotOfType)?;
        self.quoted(text);
        Ok(())
    }

    /// A string if the bytes are text, and a list of numbers otherwise.
    fn raw(&mut self, bytes: &[u8]) {
        let is_text = |text: &&str| !text.chars().any(|c| c.is_control() && !"\n\r\t".contains(c));
        match std::str::from_utf8(bytes).ok().filter(is_text) {
            Some(text) => self.quoted(text),
            None => self.push(format_args!("{bytes:?}").to_string().replace(", ", ",")),
        }
    }

    fn boolean(&mut self) -> Result<(), NotOfType> {
        match self.array()? {
            [0] => self.push("false"),
            [1] => self.push("true"),
            _ => return Err(NotOfType),
        }
        Ok(())
    }

    /// An integer; as a string if readers of JSON would round it.
    fn integer(&mut self, integer: Integer, bits: u128) {
        let unused = 128 - integer.size * 8;
        if integer.is_signed {
            let number = (bits << unused).cast_signed() >> unused;
            match i64::try_from(number) {
                Ok(number) => self.push(number),
                Err(_) => self.push(format_args!("\"{number}\"")),
            }
        } else {
            match u64::try_from(bits) {
                Ok(number) => self.push(number),
                Err(_) => self.push(format_args!("\"{bits}\"")),
            }
        }
    }

    fn float<F: Into<f64> + Copy + serde::Serialize>(&mut self, number: F) {
        let wide: f64 = number.into();
        if wide.is_nan() {
            self.push("\"NaN\"");
        } else if wide.is_infinite() {
            self.push(if wide > 0.0 { "\"inf\"" } else { "\"-inf\"" });
        } else {
            // The shortest text from which the number is read again.
            self.push(serde_json::to_string(&number).unwrap_or_default());
        }
    }

    /// `count` values, separated by commas.
    fn each(
        &mut self,
        count: usize,
        mut value: impl FnMut(&mut Self, usize) -> Result<(), NotOfType>,
    ) -> Result<(), NotOfType> {
        for index in 0..count {
            if index > 0 {
                self.json.push(',');
            }
            value(self, index)?;
        }
        Ok(())
    }

    fn list(
        &mut self,
        count: usize,
        value: impl FnMut(&mut Self, usize) -> Result<(), NotOfType>,
    ) -> Result<(), NotOfType> {
        self.json.push('[');
        self.each(count, value)?;
        self.json.push(']');
        Ok(())
    }

    /// Decodes an element of a list, of which the answer or the type may state any number.
    fn element(&mut self, value: impl FnOnce(&mut Self) -> Result<(), NotOfType>) -> Result<(), NotOfType> {
        let left = self.bytes.len();
        value(self)?;
        self.empty += usize::from(self.bytes.len() == left);
        match self.empty <= MAX_EMPTY {
            true => Ok(()),
            false => Err(NotOfType),
        }
    }

    fn elements(
        &mut self,
        count: usize,
        mut value: impl FnMut(&mut Self) -> Result<(), NotOfType>,
    ) -> Result<(), NotOfType> {
        self.list(count, |decoder, _| decoder.element(&mut value))
    }

    fn object<'n>(
        &mut self,
        names: impl ExactSizeIterator<Item = &'n String> + Clone,
        mut value: impl FnMut(&mut Self, usize) -> Result<(), NotOfType>,
    ) -> Result<(), NotOfType> {
        self.json.push('{');
        let mut names = names.into_iter();
        self.each(names.len(), |decoder, index| {
            decoder.quoted(names.next().map_or("", |name| name));
            decoder.json.push(':');
            value(decoder, index)
        })?;
        self.json.push('}');
        Ok(())
    }

    // Postcard.

    fn varint(&mut self) -> Result<u128, NotOfType> {
        let mut number = 0_u128;
        for shift in (0..).step_by(7).take(19) {
            let [byte] = self.array()?;
            let bits = u128::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(NotOfType)
    }

    fn length(&mut self) -> Result<usize, NotOfType> {
        let length = self.varint()?;
        // Elements may have no bytes, but then they are not many.
        let most = (self.bytes.len() + MAX_EMPTY) as u128;
        usize::try_from(length)
            .ok()
            .filter(|_| length <= most)
            .ok_or(NotOfType)
    }

    fn postcard(&mut self, ty: &'a Type) -> Result<(), NotOfType> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(NotOfType);
        }
        self.postcard_within(ty)?;
        self.depth -= 1;
        Ok(())
    }

    fn postcard_within(&mut self, ty: &'a Type) -> Result<(), NotOfType> {
        match ty {
            Type::Unit => self.push("null"),
            Type::Bool => self.boolean()?,
            Type::Char | Type::Str => {
                let length = self.length()?;
                let bytes = self.take(length)?;
                self.string(bytes)?;
            }
            Type::Integer(integer) => {
                let bits = match (integer.size, integer.is_signed) {
                    (1, _) => u128::from(self.array::<1>()?[0]),
                    (_, false) => self.varint()?,
                    (_, true) => {
                        let folded = self.varint()?;
                        (folded >> 1) ^ 0_u128.wrapping_sub(folded & 1)
                    }
                };
                self.integer(*integer, bits);
            }
            Type::F32 => {
                let number = f32::from_le_bytes(self.array()?);
                self.float(number);
            }
            Type::F64 => {
                let number = f64::from_le_bytes(self.array()?);
                self.float(number);
            }
            Type::Bytes => {
                let length = self.length()?;
                let bytes = self.take(length)?;
                self.raw(bytes);
            }
            Type::Array(element, count) => self.elements(*count, |decoder| decoder.postcard(element))?,
            Type::List(element) | Type::Counted(element) => {
                let count = self.length()?;
                self.elements(count, |decoder| decoder.postcard(element))?;
            }
            Type::Option(inner) => match self.array()? {
                [0] => self.push("null"),
                [1] => self.postcard(inner)?,
                _ => return Err(NotOfType),
            },
            Type::Map(key, value) => self.map(key, value)?,
            Type::Tuple(types) => self.list(types.len(), |decoder, index| decoder.postcard(&types[index]))?,
            Type::Struct(of) => {
                self.outer.push(ty);
                self.fields(&of.fields)?;
                self.outer.pop();
            }
            Type::Enum(of) => {
                self.outer.push(ty);
                self.variant(of)?;
                self.outer.pop();
            }
            Type::Address(address) => self.address(*address)?,
            Type::Outer(name) => {
                let outer = self.outer.iter().rposition(|ty| ty.own_name() == Some(name));
                let outer = outer.ok_or(NotOfType)?;
                let inside = self.outer.split_off(outer + 1);
                let found = self.outer[outer];
                self.outer.pop();
                self.postcard(found)?;
                self.outer.push(found);
                self.outer.extend(inside);
            }
            Type::Layout(_) | Type::Numbers(_) | Type::Unknown(_) => return Err(NotOfType),
        }
        Ok(())
    }

    fn fields(&mut self, fields: &'a Fields) -> Result<(), NotOfType> {
        match fields {
            Fields::Unit => self.push("null"),
            Fields::Unnamed(types) => match &types[..] {
                [only] => self.postcard(only)?,
                types => self.list(types.len(), |decoder, index| decoder.postcard(&types[index]))?,
            },
            Fields::Named(fields) => self.object(fields.iter().map(|(name, _)| name), |decoder, index| {
                decoder.postcard(&fields[index].1)
            })?,
        }
        Ok(())
    }

    fn variant(&mut self, of: &'a Enum) -> Result<(), NotOfType> {
        let index = usize::try_from(self.varint()?).map_err(|_| NotOfType)?;
        let (name, fields) = of.variants.get(index).ok_or(NotOfType)?;
        if matches!(fields, Fields::Unit) {
            self.quoted(name);
            return Ok(());
        }
        self.object([name].into_iter(), |decoder, _| decoder.fields(fields))
    }

    /// An object if keys are strings or can be, and a list of pairs otherwise.
    fn map(&mut self, key: &'a Type, value: &'a Type) -> Result<(), NotOfType> {
        let count = self.length()?;
        let is_object = match key {
            Type::Bool | Type::Char | Type::Integer(_) | Type::Str | Type::Address(_) => true,
            Type::Enum(of) => of.variants.iter().all(|(_, fields)| *fields == Fields::Unit),
            _ => false,
        };
        if !is_object {
            return self.elements(count, |decoder| {
                decoder.list(2, |decoder, index| {
                    decoder.postcard(if index == 0 { key } else { value })
                })
            });
        }
        self.json.push('{');
        self.each(count, |decoder, _| {
            decoder.element(|decoder| {
                let before = decoder.json.len();
                decoder.postcard(key)?;
                let written = decoder.json.split_off(before);
                match written.starts_with('"') {
                    true => decoder.json.push_str(&written),
                    false => decoder.push(format_args!("\"{written}\"")),
                }
                decoder.json.push(':');
                decoder.postcard(value)
            })
        })?;
        self.json.push('}');
        Ok(())
    }

    fn address(&mut self, address: Address) -> Result<(), NotOfType> {
        let is_v6 = match address {
            Address::V4 | Address::SocketV4 => false,
            Address::V6 | Address::SocketV6 => true,
            Address::Ip | Address::Socket => match self.array()? {
                [0] => false,
                [1] => true,
                _ => return Err(NotOfType),
            },
        };
        let (v4, v6) = match is_v6 {
            false => (Ipv4Addr::from(self.array::<4>()?), Ipv6Addr::UNSPECIFIED),
            true => (Ipv4Addr::UNSPECIFIED, Ipv6Addr::from(self.array::<16>()?)),
        };
        let has_port = matches!(address, Address::SocketV4 | Address::SocketV6 | Address::Socket);
        let text = if has_port {
            let port = u16::try_from(self.varint()?).map_err(|_| NotOfType)?;
            match is_v6 {
                false => SocketAddrV4::new(v4, port).to_string(),
                true => SocketAddrV6::new(v6, port, 0, 0).to_string(),
            }
        } else {
            match is_v6 {
                false => v4.to_string(),
                true => v6.to_string(),
            }
        };
        self.quoted(&text);
        Ok(())
    }

    // Fixed layouts. A text bounds their depth, because none refers to itself.

    fn fixed(&mut self, ty: &'a Type) -> Result<(), NotOfType> {
        match ty {
            Type::Unit => self.push("null"),
            Type::Bool => self.boolean()?,
            Type::Char => {
                let number = u32::from_le_bytes(self.array()?);
                let character = char::from_u32(number).ok_or(NotOfType)?;
                self.quoted(character.encode_utf8(&mut [0; 4]));
            }
            Type::Integer(integer) => {
                let bits = self.unsigned(integer.size)?;
                self.integer(*integer, bits);
            }
            Type::F32 => {
                let number = f32::from_le_bytes(self.array()?);
                self.float(number);
            }
            Type::F64 => {
                let number = f64::from_le_bytes(self.array()?);
                self.float(number);
            }
            Type::Array(element, count) => self.elements(*count, |decoder| decoder.fixed(element))?,
            Type::List(element) => {
                let size = element.size().ok_or(NotOfType)?;
                // Without bytes, nothing says how many there are.
                let count = self.bytes.len().checked_div(size).unwrap_or_default();
                self.elements(count, |decoder| decoder.fixed(element))?;
            }
            Type::Counted(element) => {
                let size = element.size().filter(|size| *size > 0).ok_or(NotOfType)?;
                let count = u64::from_le_bytes(self.array()?);
                let count = usize::try_from(count).map_err(|_| NotOfType)?;
                if count > self.bytes.len() / size {
                    return Err(NotOfType);
                }
                self.elements(count, |decoder| decoder.fixed(element))?;
            }
            Type::Option(inner) => match self.array()? {
                [0] => self.push("null"),
                [1] => self.fixed(inner)?,
                _ => return Err(NotOfType),
            },
            Type::Tuple(types) => self.list(types.len(), |decoder, index| decoder.fixed(&types[index]))?,
            Type::Layout(layout) => self.layout(layout)?,
            Type::Numbers(numbers) => self.numbered(numbers)?,
            _ => return Err(NotOfType),
        }
        Ok(())
    }

    fn unsigned(&mut self, size: usize) -> Result<u128, NotOfType> {
        let mut all = [0; 16];
        all.get_mut(..size)
            .ok_or(NotOfType)?
            .copy_from_slice(self.take(size)?);
        Ok(u128::from_le_bytes(all))
    }

    fn layout(&mut self, layout: &'a Layout) -> Result<(), NotOfType> {
        let whole = self.take(layout.size)?;
        let rest = self.bytes;
        let field = |decoder: &mut Self, index: usize| {
            let (offset, _, ty) = &layout.fields[index];
            decoder.bytes = whole.get(*offset..).ok_or(NotOfType)?;
            decoder.fixed(ty)
        };
        match (layout.is_tuple(), layout.fields.len()) {
            (true, 1) => field(self, 0)?,
            (true, count) => self.list(count, field)?,
            (false, _) => self.object(layout.fields.iter().map(|(_, name, _)| name), field)?,
        }
        self.bytes = rest;
        Ok(())
    }

    fn numbered(&mut self, numbers: &Numbers) -> Result<(), NotOfType> {
        let whole = self.take(numbers.size)?;
        let rest = std::mem::replace(&mut self.bytes, whole);
        let bits = self.unsigned(numbers.repr.size)?;
        self.bytes = rest;
        let unused = 128 - numbers.repr.size * 8;
        let number = match numbers.repr.is_signed {
            true => (bits << unused).cast_signed() >> unused,
            false => bits.cast_signed(),
        };
        let variant = numbers.variants.iter().find(|(_, known)| *known == number);
        let (name, _) = variant.ok_or(NotOfType)?;
        self.quoted(name);
        Ok(())
    }
}
