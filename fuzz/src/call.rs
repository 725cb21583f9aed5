//! `cargo ifunc call`: types from their texts, JSON to bytes, and bytes to JSON. The sources are those of the command.

#[path = "../../cargo-ifunc/src/commands/call/decode.rs"]
mod decode;
#[path = "../../cargo-ifunc/src/commands/call/encode.rs"]
mod encode;
#[path = "../../cargo-ifunc/src/commands/call/example.rs"]
mod example;
#[path = "../../cargo-ifunc/src/commands/call/types.rs"]
mod types;

use serde_json::Value;
use types::Codec;

/// The text of a type, a zero, and bytes: an answer of that type, or JSON for a payload of it.
pub fn run(data: &[u8]) {
    let Some(zero) = data.iter().position(|&byte| byte == 0) else {
        return;
    };
    let (text, bytes) = (&data[..zero], &data[zero + 1..]);
    let Some(codec) = std::str::from_utf8(text)
        .ok()
        .and_then(|text| Codec::parse(text).ok())
    else {
        return;
    };
    if let Some(example) = example::example(&codec) {
        let value: Value = serde_json::from_str(&example).expect("an example is JSON");
        assert!(encode::encode(&codec, &value).is_ok(), "{example} is no example");
    }
    answer(&codec, bytes);
    if let Ok(value) = serde_json::from_slice::<Value>(bytes)
        && let Ok(encoded) = encode::encode(&codec, &value)
    {
        answer(&codec, &encoded);
    }
}

/// Bytes that are a value print as JSON, which is the same value.
fn answer(codec: &Codec, bytes: &[u8]) {
    let Ok(Some(json)) = decode::decode(codec, bytes) else {
        return;
    };
    let value = match serde_json::from_str::<Value>(&json) {
        Ok(value) => value,
        // Deeper than that crate goes.
        Err(error) if error.to_string().contains("recursion limit") => return,
        Err(error) => panic!("{error}: {json}"),
    };
    let Ok(encoded) = encode::encode(codec, &value) else {
        return;
    };
    let again = decode::decode(codec, &encoded).expect("what was encoded is a value");
    let again: Value = serde_json::from_str(&again.unwrap_or("null".into())).expect("JSON");
    assert_eq!(again, value);
}

/// Whether the bytes are a value of this type, as the command sees it. `None`: the text is no type.
pub(crate) fn is_value(text: &str, bytes: &[u8]) -> Option<bool> {
    let codec = Codec::parse(text).ok()?;
    Some(decode::decode(&codec, bytes).is_ok())
}
