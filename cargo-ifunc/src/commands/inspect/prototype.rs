//! Translates the canonical text of a signature (`ifunc_abi::text`) to its C prototype.
//!
//! ```text
//! fn insert(&opaque store/1,&[u8])->Result<u64,i32>
//! int32_t insert(const struct store *, const uint8_t *, size_t, uint64_t *);
//! ```

/// The prototype of `symbol`; `None` if the text has no C equivalent.
pub(super) fn of(symbol: &str, signature: &str) -> Option<String> {
    let rest = signature.strip_prefix("fn ")?;
    let open = rest.find('(')?;
    let (params, rest) = enclosed(&rest[open..])?;
    let mut c_params = Vec::new();
    for param in split(params) {
        parameter(param, &mut c_params)?;
    }
    let result = match rest.trim().strip_prefix("->") {
        None if rest.trim().is_empty() => "void".into(),
        None => return None,
        Some(result) => result_type(result.trim(), &mut c_params)?,
    };
    let params = if c_params.is_empty() {
        "void".into()
    } else {
        c_params.join(", ")
    };
    let gap = if result.ends_with('*') { "" } else { " " };
    Some(format!("{result}{gap}{symbol}({params});"))
}

/// The return type; a result returned by pointer becomes one more parameter.
fn result_type(text: &str, params: &mut Vec<String>) -> Option<String> {
    if text == "()" {
        return Some("void".into());
    }
    for (wrapper, code) in [("Result<", "int32_t"), ("Option<", "uint8_t")] {
        let Some(inner) = text.strip_prefix(wrapper).and_then(|text| text.strip_suffix('>')) else {
            continue;
        };
        let ok = split(inner).next()?;
        if wrapper == "Option<" && ok.starts_with('&') {
            return pointer(ok);
        }
        if ok != "()" {
            params.push(pointed(&value(ok).or_else(|| pointer(ok))?));
        }
        return Some(code.into());
    }
    value(text).or_else(|| pointer(text))
}

fn parameter(text: &str, out: &mut Vec<String>) -> Option<()> {
    if let Some(inner) = text
        .strip_prefix("Option<")
        .and_then(|text| text.strip_suffix('>'))
    {
        out.push(pointer(inner)?);
        return Some(());
    }
    if let Some(value) = value(text) {
        out.push(value);
        return Some(());
    }
    let (referent, constant) = referent(text)?;
    let element = match referent {
        "str" => Some("char".to_owned()),
        _ => match referent.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            Some(array) if array.contains(';') => None,
            Some(element) => Some(value(element)?),
            None => None,
        },
    };
    match element {
        Some(element) => {
            out.push(format!("{constant}{element} *"));
            out.push("size_t".into());
        }
        None => out.push(pointer(text)?),
    }
    Some(())
}

/// `&T` and `&mut T` of a sized type.
fn pointer(text: &str) -> Option<String> {
    let (referent, constant) = referent(text)?;
    Some(pointed(&format!("{constant}{}", value(referent)?)))
}

fn pointed(ty: &str) -> String {
    if ty.ends_with('*') {
        format!("{ty}*")
    } else {
        format!("{ty} *")
    }
}

fn referent(text: &str) -> Option<(&str, &'static str)> {
    let referent = text.strip_prefix('&')?;
    Some(
        referent
            .strip_prefix("mut ")
            .map_or((referent, "const "), |referent| (referent, "")),
    )
}

/// A type that crosses by value or is pointed to.
fn value(text: &str) -> Option<String> {
    let c = match text {
        "u8" | "u16" | "u32" | "u64" => return Some(format!("uint{}_t", &text[1..])),
        "i8" | "i16" | "i32" | "i64" => return Some(format!("int{}_t", &text[1..])),
        "usize" => "size_t",
        "isize" => "ptrdiff_t",
        "f32" => "float",
        "f64" => "double",
        "bool" => "uint8_t",
        _ => {
            let named = text
                .strip_prefix("struct ")
                .or_else(|| text.strip_prefix("opaque "))?;
            let name = named
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .next()?;
            return (!name.is_empty()).then(|| format!("struct {name}"));
        }
    };
    Some(c.into())
}

/// The contents of the parentheses that `text` begins with, and the rest.
fn enclosed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[1..at], &text[at + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits at commas outside brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |c: char| {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn signatures_become_prototypes() {
        let cases = [
            ("fn f()", "void f(void);"),
            ("fn f(u64,bool)->f64", "double f(uint64_t, uint8_t);"),
            (
                "fn f(&opaque store/1,&[u8],&str)->Result<(),i32>",
                "int32_t f(const struct store *, const uint8_t *, size_t, const char *, size_t);",
            ),
            (
                "fn f(&mut u32)->Result<u64,i32>",
                "int32_t f(uint32_t *, uint64_t *);",
            ),
            ("fn f(u8)->Option<i16>", "uint8_t f(uint8_t, int16_t *);"),
            (
                "fn f(&struct P{0:x:f64,8:y:[u8;8]}[16,8],&mut [u16])",
                "void f(const struct P *, uint16_t *, size_t);",
            ),
            ("fn f(Option<&u8>)->u8", "uint8_t f(const uint8_t *);"),
        ];
        for (text, c) in cases {
            assert_eq!(of("f", text).as_deref(), Some(c), "{text}");
        }
        assert_eq!(of("f", "fn f(&dyn Any)"), None);
        assert_eq!(of("f", "nonsense"), None);
    }
}
