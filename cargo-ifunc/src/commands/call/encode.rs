//! JSON → the bytes of a payload.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use serde_json::{Map, Value};

use super::types::{Address, Codec, Enum, Fields, Integer, Layout, Numbers, Type, names};

/// A value that is not of its type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// Where in the JSON text: `.items[3].name`, or `.` for the whole.
    pub(super) path: String,
    pub(super) wanted: String,
    pub(super) found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, wanted, found } = self;
        write!(f, "at `{path}`: expected {wanted}, found {found}")
    }
}

/// The bytes of a value.
pub(super) fn encode(codec: &Codec, value: &Value) -> Result<Vec<u8>, Mismatch> {
    let mut encoder = Encoder::default();
    match codec {
        Codec::RawBytes => encoder.bytes(&Type::Bytes, value)?,
        Codec::RawStr => {
            let text = encoder.text(&Type::Str, value)?;
            encoder.out.extend(text.as_bytes());
        }
        Codec::Postcard(ty) => encoder.postcard(ty, value)?,
        Codec::Fixed(ty) => encoder.fixed(ty, value)?,
        Codec::Parts(types) => encoder.parts(types, value)?,
    }
    Ok(encoder.out)
}

/// Longest value of a fixed layout: no image makes this command allocate more, whatever size its text states.
const MAX_LEN: usize = 64 << 20;

/// Writes values behind each other.
#[derive(Default)]
struct Encoder<'a> {
    out: Vec<u8>,
    /// Where the current value stands in the JSON text.
    path: Vec<Step<'a>>,
    /// The types around the current value that have a name.
    outer: Vec<&'a Type>,
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(String),
}

impl<'a> Encoder<'a> {
    fn mismatch(&self, wanted: impl fmt::Display, found: impl fmt::Display) -> Mismatch {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => path.extend([".", name]),
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Key(key) => path.push_str(&format!("[{key:?}]")),
            }
        }
        if path.is_empty() {
            path.push('.');
        }
        Mismatch {
            path,
            wanted: wanted.to_string(),
            found: found.to_string(),
        }
    }

    fn wrong(&self, ty: &Type, value: &Value) -> Mismatch {
        self.mismatch(ty, found(value))
    }

    fn at<T>(
        &mut self,
        step: Step<'a>,
        then: impl FnOnce(&mut Self) -> Result<T, Mismatch>,
    ) -> Result<T, Mismatch> {
        self.path.push(step);
        let done = then(self)?;
        self.path.pop();
        Ok(done)
    }

    // Plain values, which each codec writes by its own.

    fn boolean(&self, value: &Value) -> Result<u8, Mismatch> {
        let value = value.as_bool().map(u8::from);
        value.ok_or_else(|| self.mismatch(Type::Bool, "another value"))
    }

    fn character(&self, value: &Value) -> Result<char, Mismatch> {
        let text = self.text(&Type::Char, value)?;
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(self.wrong(&Type::Char, value)),
        }
    }

    fn text<'v>(&self, ty: &Type, value: &'v Value) -> Result<&'v str, Mismatch> {
        value.as_str().ok_or_else(|| self.wrong(ty, value))
    }

    fn float(&self, ty: &Type, value: &Value) -> Result<f64, Mismatch> {
        let named = value.as_str().and_then(|text| match text {
            "NaN" => Some(f64::NAN),
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        });
        named.or(value.as_f64()).ok_or_else(|| self.wrong(ty, value))
    }

    /// The two's complement of the integer, of which the type takes the lowest bytes.
    fn integer(&self, integer: Integer, value: &Value) -> Result<u128, Mismatch> {
        let bits = integer.size * 8;
        // A string is for integers that readers of JSON would round.
        let text = match value {
            Value::Number(number) => number.to_string(),
            Value::String(text) => text.clone(),
            _ => return Err(self.wrong(&Type::Integer(integer), value)),
        };
        let (bits_of, is_in_range) = if integer.is_signed {
            let number = text.parse::<i128>().ok();
            let half = 1_i128 << (bits - 1).min(126);
            let is_in_range = |n: i128| bits == 128 || (-half..half).contains(&n);
            (number.map(|n| n as u128), number.is_some_and(is_in_range))
        } else {
            let number = text.parse::<u128>().ok();
            (number, number.is_some_and(|n| bits == 128 || n >> bits == 0))
        };
        match bits_of.filter(|_| is_in_range) {
            Some(bits) => Ok(bits),
            None => {
                let range = match (integer.is_signed, bits) {
                    (_, 128) => String::new(),
                    (true, bits) => format!(
                        " from {} to {}",
                        -(1_i128 << (bits - 1)),
                        (1_i128 << (bits - 1)) - 1
                    ),
                    (false, bits) => format!(" from 0 to {}", (1_u128 << bits) - 1),
                };
                Err(self.mismatch(format_args!("an integer{range} ({})", integer.name), found(value)))
            }
        }
    }

    fn list<'v>(&self, ty: &Type, value: &'v Value) -> Result<&'v [Value], Mismatch> {
        value
            .as_array()
            .map(Vec::as_slice)
            .ok_or_else(|| self.wrong(ty, value))
    }

    fn list_of<'v>(&self, count: usize, ty: &Type, value: &'v Value) -> Result<&'v [Value], Mismatch> {
        let list = self.list(ty, value)?;
        match list.len() == count {
            true => Ok(list),
            false => Err(self.mismatch(ty, format_args!("a list of {}", list.len()))),
        }
    }

    /// Appends the bytes that a string, a list of numbers or `{"hex": ".."}` stands for.
    fn bytes(&mut self, ty: &Type, value: &Value) -> Result<(), Mismatch> {
        match value {
            Value::String(text) => self.out.extend(text.as_bytes()),
            Value::Array(numbers) => {
                let byte = Integer {
                    name: "u8",
                    is_signed: false,
                    size: 1,
                };
                for (index, number) in numbers.iter().enumerate() {
                    let byte = self.at(Step::Index(index), |of| of.integer(byte, number))?;
                    self.out.push(byte as u8);
                }
            }
            Value::Object(object) => {
                let hex = object
                    .get("hex")
                    .and_then(Value::as_str)
                    .filter(|_| object.len() == 1);
                let bytes = hex.and_then(unhex).ok_or_else(|| self.wrong(ty, value))?;
                self.out.extend(bytes);
            }
            _ => return Err(self.wrong(ty, value)),
        }
        Ok(())
    }

    /// The bytes of a list of bytes, unless it is written as any list.
    fn bytes_of_list(
        &mut self,
        ty: &Type,
        element: &Type,
        value: &Value,
    ) -> Result<Option<Vec<u8>>, Mismatch> {
        if !element.is_byte() || value.is_array() {
            return Ok(None);
        }
        let before = std::mem::take(&mut self.out);
        self.bytes(ty, value)?;
        Ok(Some(std::mem::replace(&mut self.out, before)))
    }

    /// The fields of an object, in the order of the type; `None`: missing, and the type has a value for that.
    fn members<'v, 't>(
        &self,
        ty: &Type,
        fields: impl Iterator<Item = (&'t String, &'t Type)> + Clone,
        value: &'v Value,
    ) -> Result<Vec<&'v Value>, Mismatch> {
        const MISSING: &Value = &Value::Null;
        let object = value.as_object().ok_or_else(|| self.wrong(ty, value))?;
        if let Some(unknown) = object
            .keys()
            .find(|key| !fields.clone().any(|(name, _)| name == *key))
        {
            return Err(self.mismatch(ty, format_args!("an object with `{unknown}`")));
        }
        let member = |(name, of): (&String, &Type)| match object.get(name) {
            Some(value) => Ok(value),
            None if matches!(of, Type::Option(_)) => Ok(MISSING),
            None => Err(self.mismatch(ty, format_args!("an object without `{name}`"))),
        };
        fields.map(member).collect()
    }

    // Postcard.

    fn varint(&mut self, mut number: u128) {
        while number >= 0x80 {
            self.out.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.out.push(number as u8);
    }

    fn postcard(&mut self, ty: &'a Type, value: &Value) -> Result<(), Mismatch> {
        match ty {
            Type::Unit if value.is_null() => {}
            Type::Unit => return Err(self.wrong(ty, value)),
            Type::Bool => {
                let byte = self.boolean(value)?;
                self.out.push(byte);
            }
            Type::Char => {
                let text = self.character(value)?.to_string();
                self.sized(text.as_bytes());
            }
            Type::Integer(integer) => {
                let bits = self.integer(*integer, value)?;
                match (integer.size, integer.is_signed) {
                    (1, _) => self.out.push(bits as u8),
                    (_, false) => self.varint(bits),
                    (_, true) => {
                        let number = bits as i128;
                        self.varint(((number << 1) ^ (number >> 127)) as u128);
                    }
                }
            }
            Type::F32 => {
                let number = self.float(ty, value)? as f32;
                self.out.extend(number.to_le_bytes());
            }
            Type::F64 => {
                let number = self.float(ty, value)?;
                self.out.extend(number.to_le_bytes());
            }
            Type::Str => {
                let text = self.text(ty, value)?;
                self.sized(text.as_bytes());
            }
            Type::Bytes => {
                let before = std::mem::take(&mut self.out);
                self.bytes(ty, value)?;
                let bytes = std::mem::replace(&mut self.out, before);
                self.sized(&bytes);
            }
            Type::Array(element, count) => {
                if let Some(bytes) = self.bytes_of_list(ty, element, value)? {
                    if bytes.len() != *count {
                        return Err(self.mismatch(ty, format_args!("{} bytes", bytes.len())));
                    }
                    self.out.extend(bytes);
                    return Ok(());
                }
                let list = self.list_of(*count, ty, value)?;
                self.elements(element, list)?;
            }
            Type::List(element) | Type::Counted(element) => {
                if let Some(bytes) = self.bytes_of_list(ty, element, value)? {
                    self.sized(&bytes);
                    return Ok(());
                }
                let list = self.list(ty, value)?;
                self.varint(list.len() as u128);
                self.elements(element, list)?;
            }
            Type::Option(_) if value.is_null() => self.out.push(0),
            Type::Option(inner) => {
                self.out.push(1);
                self.postcard(inner, value)?;
            }
            Type::Map(key, of) => self.map(ty, key, of, value)?,
            Type::Tuple(types) => {
                let list = self.list_of(types.len(), ty, value)?;
                self.unnamed(types, list)?;
            }
            Type::Struct(of) => {
                self.outer.push(ty);
                self.fields(ty, &of.fields, value)?;
                self.outer.pop();
            }
            Type::Enum(of) => {
                self.outer.push(ty);
                self.variant(ty, of, value)?;
                self.outer.pop();
            }
            Type::Address(address) => self.address(ty, *address, value)?,
            Type::Outer(name) => {
                let outer = self.outer.iter().rposition(|ty| ty.own_name() == Some(name));
                let Some(outer) = outer else {
                    return Err(self.mismatch(Type::Unknown(name.clone()), found(value)));
                };
                // The types inside of that one are not around the value.
                let inside = self.outer.split_off(outer + 1);
                let found = self.outer[outer];
                self.outer.pop();
                self.postcard(found, value)?;
                self.outer.push(found);
                self.outer.extend(inside);
            }
            Type::Layout(_) | Type::Numbers(_) | Type::Unknown(_) => return Err(self.wrong(ty, value)),
        }
        Ok(())
    }

    /// The number of bytes, then the bytes.
    fn sized(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u128);
        self.out.extend(bytes);
    }

    fn elements(&mut self, element: &'a Type, list: &[Value]) -> Result<(), Mismatch> {
        let mut each = list.iter().enumerate();
        each.try_for_each(|(index, value)| self.at(Step::Index(index), |of| of.postcard(element, value)))
    }

    fn unnamed(&mut self, types: &'a [Type], list: &[Value]) -> Result<(), Mismatch> {
        let mut each = types.iter().zip(list).enumerate();
        each.try_for_each(|(index, (ty, value))| self.at(Step::Index(index), |of| of.postcard(ty, value)))
    }

    fn fields(&mut self, ty: &Type, fields: &'a Fields, value: &Value) -> Result<(), Mismatch> {
        match fields {
            Fields::Unit if value.is_null() => Ok(()),
            Fields::Unit => Err(self.wrong(ty, value)),
            Fields::Unnamed(types) => match &types[..] {
                [only] => self.postcard(only, value),
                types => {
                    let list = self.list_of(types.len(), ty, value)?;
                    self.unnamed(types, list)
                }
            },
            Fields::Named(fields) => {
                let members = self.members(ty, fields.iter().map(|(name, of)| (name, of)), value)?;
                let mut each = fields.iter().zip(members);
                each.try_for_each(|((name, ty), value)| {
                    self.at(Step::Field(name), |of| of.postcard(ty, value))
                })
            }
        }
    }

    fn variant(&mut self, ty: &Type, of: &'a Enum, value: &Value) -> Result<(), Mismatch> {
        let (name, content) = match value {
            Value::String(name) => (name, &Value::Null),
            Value::Object(object) => match only(object) {
                Some(member) => member,
                None => return Err(self.mismatch(ty, "an object that has not one member")),
            },
            _ => return Err(self.wrong(ty, value)),
        };
        let known = of.variants.iter().position(|(known, _)| known == name);
        let Some((index, (name, fields))) = known.map(|index| (index, &of.variants[index])) else {
            return Err(self.mismatch(ty, format_args!("`{name}`")));
        };
        if value.is_string() && !matches!(fields, Fields::Unit) {
            return Err(self.mismatch(
                format_args!("an object, because the variant has a value: {{\"{name}\": ..}}"),
                found(value),
            ));
        }
        self.varint(index as u128);
        let described = match fields {
            Fields::Unit => Type::Unit,
            Fields::Unnamed(types) => Type::Tuple(types.clone()),
            Fields::Named(_) => Type::Struct(super::types::Struct {
                name: format!("{}::{name}", of.name),
                fields: fields.clone(),
            }),
        };
        self.at(Step::Field(name), |of| of.fields(&described, fields, content))
    }

    fn map(&mut self, ty: &Type, key: &'a Type, of: &'a Type, value: &Value) -> Result<(), Mismatch> {
        match value {
            Value::Object(object) => {
                self.varint(object.len() as u128);
                for (name, value) in object {
                    let as_key = self.key(key, name);
                    self.at(Step::Key(name.clone()), |encoder| {
                        encoder.postcard(key, &as_key)?;
                        encoder.postcard(of, value)
                    })?;
                }
            }
            Value::Array(pairs) => {
                self.varint(pairs.len() as u128);
                for (index, pair) in pairs.iter().enumerate() {
                    self.at(Step::Index(index), |encoder| {
                        match pair.as_array().map(Vec::as_slice) {
                            Some([first, second]) => {
                                encoder.postcard(key, first)?;
                                encoder.postcard(of, second)
                            }
                            _ => Err(encoder.mismatch("a list of key and value", found(pair))),
                        }
                    })?;
                }
            }
            _ => return Err(self.wrong(ty, value)),
        }
        Ok(())
    }

    /// The value of a key, which is a string in JSON.
    fn key(&self, ty: &Type, name: &str) -> Value {
        match (ty, name) {
            (Type::Bool, "true") => Value::Bool(true),
            (Type::Bool, "false") => Value::Bool(false),
            _ => Value::String(name.to_owned()),
        }
    }

    fn address(&mut self, ty: &Type, address: Address, value: &Value) -> Result<(), Mismatch> {
        fn read<T: std::str::FromStr>(text: &str) -> Option<T> {
            text.parse().ok()
        }
        let text = self.text(ty, value)?;
        let (tag, ip, port) = match address {
            Address::V4 => (None, read::<Ipv4Addr>(text).map(IpAddr::V4), None),
            Address::V6 => (None, read::<Ipv6Addr>(text).map(IpAddr::V6), None),
            Address::Ip => {
                let ip = read::<IpAddr>(text);
                (ip.map(|ip| u8::from(ip.is_ipv6())), ip, None)
            }
            Address::SocketV4 => {
                let socket = read::<SocketAddrV4>(text);
                (
                    None,
                    socket.map(|s| IpAddr::V4(*s.ip())),
                    socket.map(|s| s.port()),
                )
            }
            Address::SocketV6 => {
                let socket = read::<SocketAddrV6>(text);
                (
                    None,
                    socket.map(|s| IpAddr::V6(*s.ip())),
                    socket.map(|s| s.port()),
                )
            }
            Address::Socket => {
                let socket = read::<SocketAddr>(text);
                (
                    socket.map(|s| u8::from(s.is_ipv6())),
                    socket.map(|s| s.ip()),
                    socket.map(|s| s.port()),
                )
            }
        };
        let ip = ip.ok_or_else(|| self.wrong(ty, value))?;
        self.out.extend(tag);
        match ip {
            IpAddr::V4(ip) => self.out.extend(ip.octets()),
            IpAddr::V6(ip) => self.out.extend(ip.octets()),
        }
        if let Some(port) = port {
            self.varint(port.into());
        }
        Ok(())
    }

    // Fixed layouts.

    fn fixed(&mut self, ty: &'a Type, value: &Value) -> Result<(), Mismatch> {
        match ty {
            Type::Unit if value.is_null() => {}
            Type::Bool => {
                let byte = self.boolean(value)?;
                self.out.push(byte);
            }
            Type::Char => {
                let character = u32::from(self.character(value)?);
                self.out.extend(character.to_le_bytes());
            }
            Type::Integer(integer) => {
                let bits = self.integer(*integer, value)?;
                self.out.extend(&bits.to_le_bytes()[..integer.size]);
            }
            Type::F32 => {
                let number = self.float(ty, value)? as f32;
                self.out.extend(number.to_le_bytes());
            }
            Type::F64 => {
                let number = self.float(ty, value)?;
                self.out.extend(number.to_le_bytes());
            }
            Type::Array(element, count) => {
                if let Some(bytes) = self.bytes_of_list(ty, element, value)? {
                    if bytes.len() != *count {
                        return Err(self.mismatch(ty, format_args!("{} bytes", bytes.len())));
                    }
                    self.out.extend(bytes);
                    return Ok(());
                }
                let list = self.list_of(*count, ty, value)?;
                self.fixed_elements(element, list)?;
            }
            Type::List(element) => {
                if let Some(bytes) = self.bytes_of_list(ty, element, value)? {
                    self.out.extend(bytes);
                    return Ok(());
                }
                let list = self.list(ty, value)?;
                self.fixed_elements(element, list)?;
            }
            Type::Counted(element) => {
                if let Some(bytes) = self.bytes_of_list(ty, element, value)? {
                    self.out.extend((bytes.len() as u64).to_le_bytes());
                    self.out.extend(bytes);
                    return Ok(());
                }
                let list = self.list(ty, value)?;
                self.out.extend((list.len() as u64).to_le_bytes());
                self.fixed_elements(element, list)?;
            }
            Type::Option(_) if value.is_null() => self.out.push(0),
            Type::Option(inner) => {
                self.out.push(1);
                self.fixed(inner, value)?;
            }
            Type::Tuple(types) => {
                let list = self.list_of(types.len(), ty, value)?;
                for (index, (ty, value)) in types.iter().zip(list).enumerate() {
                    self.at(Step::Index(index), |of| of.fixed(ty, value))?;
                }
            }
            Type::Layout(layout) => self.layout(ty, layout, value)?,
            Type::Numbers(numbers) => {
                let number = self.numbered(ty, numbers, value)?;
                self.out.extend(&number.to_le_bytes()[..numbers.repr.size]);
                self.zeroes(numbers.size - numbers.repr.size, ty)?;
            }
            _ => return Err(self.wrong(ty, value)),
        }
        Ok(())
    }

    fn fixed_elements(&mut self, element: &'a Type, list: &[Value]) -> Result<(), Mismatch> {
        let mut each = list.iter().enumerate();
        each.try_for_each(|(index, value)| self.at(Step::Index(index), |of| of.fixed(element, value)))
    }

    fn layout(&mut self, ty: &Type, layout: &'a Layout, value: &Value) -> Result<(), Mismatch> {
        let begin = self.out.len();
        let fields = &layout.fields;
        let values: Vec<&Value> = match (layout.is_tuple(), &fields[..]) {
            (true, [_]) => vec![value],
            (true, several) => self.list_of(several.len(), ty, value)?.iter().collect(),
            (false, _) => self.members(ty, fields.iter().map(|(_, name, of)| (name, of)), value)?,
        };
        // Padding is zero.
        self.zeroes(layout.size, ty)?;
        let end = self.out.len();
        for ((offset, name, ty), value) in fields.iter().zip(values) {
            self.at(Step::Field(name), |of| of.fixed(ty, value))?;
            let field = self.out.split_off(end);
            // The parser has checked that the fields lie inside.
            self.out[begin + offset..][..field.len()].copy_from_slice(&field);
        }
        Ok(())
    }

    /// Appends zeroes, of which a text may state any number.
    fn zeroes(&mut self, count: usize, ty: &Type) -> Result<(), Mismatch> {
        let len = self.out.len().saturating_add(count);
        if len > MAX_LEN {
            return Err(self.mismatch(
                format_args!("at most {MAX_LEN} bytes"),
                format_args!("{len} with `{ty}`"),
            ));
        }
        self.out.resize(len, 0);
        Ok(())
    }

    fn numbered(&self, ty: &Type, numbers: &Numbers, value: &Value) -> Result<i128, Mismatch> {
        let name = self.text(ty, value)?;
        let known = numbers.variants.iter().find(|(known, _)| known == name);
        match known {
            Some((_, number)) => Ok(*number),
            None => Err(self.mismatch(
                format_args!("one of {}", names(numbers.variants.iter().map(|(name, _)| name))),
                format_args!("`{name}`"),
            )),
        }
    }

    fn parts(&mut self, types: &'a [Type], value: &Value) -> Result<(), Mismatch> {
        let described = Type::Tuple(types.to_vec());
        let list = self.list_of(types.len(), &described, value)?;
        let mut parts = Vec::new();
        for (index, (ty, value)) in types.iter().zip(list).enumerate() {
            self.at(Step::Index(index), |of| match ty {
                Type::Str => {
                    let text = of.text(ty, value)?;
                    of.out.extend(text.as_bytes());
                    Ok(())
                }
                ty => of.fixed(ty, value),
            })?;
            parts.push((std::mem::take(&mut self.out), ty.align()));
        }
        for (part, _) in &parts {
            self.out.extend((part.len() as u64).to_le_bytes());
        }
        for (part, align) in parts {
            let len = self.out.len();
            let padded = len.checked_next_multiple_of(align).unwrap_or(usize::MAX);
            self.zeroes(padded - len, &described)?;
            self.out.extend(part);
        }
        Ok(())
    }
}

fn only(object: &Map<String, Value>) -> Option<(&String, &Value)> {
    let mut members = object.iter();
    members.next().filter(|_| members.next().is_none())
}

/// What a value is, for an error.
fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.chars().count() <= 40 => format!("the string {text:?}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(_) => "an object".to_owned(),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(
        digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
    )
}
