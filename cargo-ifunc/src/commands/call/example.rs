//! A value of a type, as JSON: what a caller may begin with.

use super::encode::encode;
use super::types::{Address, Codec, Enum, Fields, Numbers, Type};

/// Depth behind which optional parts are left out.
const SHALLOW: u32 = 4;
/// Longest example.
const MAX_LEN: usize = 400;

/// A value; `None` if there is none that is short and certain.
pub(super) fn example(codec: &Codec) -> Option<String> {
    let value = match codec {
        Codec::RawBytes | Codec::RawStr => "\"text\"".to_owned(),
        Codec::Postcard(ty) | Codec::Fixed(ty) => of(ty, 0)?,
        Codec::Parts(types) => list(types, 0)?,
    };
    // A type that its codec does not have, such as a struct without a layout among fixed ones, has no values.
    let is_value = |text: &str| serde_json::from_str(text).is_ok_and(|json| encode(codec, &json).is_ok());
    Some(value).filter(|value| value.len() <= MAX_LEN && is_value(value))
}

fn list<'a>(types: impl IntoIterator<Item = &'a Type>, depth: u32) -> Option<String> {
    let values: Option<Vec<_>> = types.into_iter().map(|ty| of(ty, depth + 1)).collect();
    Some(format!("[{}]", values?.join(",")))
}

fn object<'a>(fields: impl IntoIterator<Item = (&'a String, &'a Type)>, depth: u32) -> Option<String> {
    let member = |(name, ty)| {
        Some(format!(
            "{}:{}",
            serde_json::Value::from(String::clone(name)),
            of(ty, depth + 1)?
        ))
    };
    let members: Option<Vec<_>> = fields.into_iter().map(member).collect();
    Some(format!("{{{}}}", members?.join(",")))
}

fn of(ty: &Type, depth: u32) -> Option<String> {
    if depth > 16 {
        return None;
    }
    let plain = match ty {
        Type::Unit => "null",
        Type::Bool => "false",
        Type::Char => "\"a\"",
        Type::Integer(_) => "0",
        Type::F32 | Type::F64 => "0.5",
        Type::Str | Type::Bytes => "\"text\"",
        Type::Map(..) => "{}",
        Type::List(_) | Type::Counted(_) if depth > SHALLOW => "[]",
        Type::Option(_) if depth > SHALLOW => "null",
        Type::Option(inner) if matches!(**inner, Type::Outer(_)) => "null",
        Type::List(element) if matches!(**element, Type::Outer(_)) => "[]",
        Type::Address(Address::V4 | Address::Ip) => "\"127.0.0.1\"",
        Type::Address(Address::V6) => "\"::1\"",
        Type::Address(Address::SocketV4 | Address::Socket) => "\"127.0.0.1:80\"",
        Type::Address(Address::SocketV6) => "\"[::1]:80\"",
        Type::Array(element, count) => return list(vec![&**element; (*count).min(MAX_LEN)], depth),
        Type::List(element) | Type::Counted(element) => return list([&**element], depth),
        Type::Option(inner) => return of(inner, depth + 1),
        Type::Tuple(types) => return list(types, depth),
        Type::Struct(of) => return fields(&of.fields, depth),
        Type::Enum(Enum { variants, .. }) => {
            return variants.iter().find_map(|(name, of)| variant(name, of, depth));
        }
        Type::Layout(layout) if layout.is_tuple() => {
            return match &layout.fields[..] {
                [(.., only)] => of(only, depth),
                several => list(several.iter().map(|(.., ty)| ty), depth),
            };
        }
        Type::Layout(layout) => return object(layout.fields.iter().map(|(_, name, ty)| (name, ty)), depth),
        Type::Numbers(Numbers { variants, .. }) => {
            return variants.first().map(|(name, _)| format!("\"{name}\""));
        }
        Type::Outer(_) | Type::Unknown(_) => return None,
    };
    Some(plain.to_owned())
}

fn fields(fields: &Fields, depth: u32) -> Option<String> {
    match fields {
        Fields::Unit => Some("null".to_owned()),
        Fields::Unnamed(types) => match &types[..] {
            [only] => of(only, depth + 1),
            types => list(types, depth),
        },
        Fields::Named(fields) => object(fields.iter().map(|(name, ty)| (name, ty)), depth),
    }
}

fn variant(name: &str, content: &Fields, depth: u32) -> Option<String> {
    match content {
        Fields::Unit => Some(format!("\"{name}\"")),
        content => Some(format!("{{\"{name}\":{}}}", fields(content, depth)?)),
    }
}
