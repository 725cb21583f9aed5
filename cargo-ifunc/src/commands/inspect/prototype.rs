//! Translates the canonical text of a signature (`ifunc_abi::text`) to its C prototype.
//!
//! ```text
//! fn insert(&opaque store/1,&[u8])->Result<u64,i32>
//! int32_t insert(const struct store *, const uint8_t *, size_t, uint64_t *);
//! ```

/// The prototype of the function `symbol`, or the declaration of the variable; `None` if the text has no C equivalent.
pub(super) fn of(symbol: &str, signature: &str) -> Option<String> {
    if let Some(variable) = signature.strip_prefix("static ") {
        return self::variable(symbol, variable);
    }
    let rest = signature.strip_prefix("unsafe ").unwrap_or(signature);
    let rest = rest.strip_prefix("fn ")?;
    let open = rest.find('(')?;
    let (params, rest) = enclosed(&rest[open..])?;
    let mut c_params = Vec::new();
    for param in split(params) {
        parameter(param, &mut c_params)?;
    }
    let mut out = Vec::new();
    let result = match rest.trim().strip_prefix("->") {
        None if rest.trim().is_empty() => "void".into(),
        None => return None,
        Some(result) => result_type(result.trim(), &mut out)?,
    };
    // The variable arguments are the last ones.
    let variable = c_params.pop_if(|param| param == "...");
    c_params.extend(out);
    c_params.extend(variable);
    let params = if c_params.is_empty() {
        "void".into()
    } else {
        c_params.join(", ")
    };
    let gap = if result.ends_with('*') { "" } else { " " };
    Some(format!("{result}{gap}{symbol}({params});"))
}

/// The declaration of a variable: `HITS:atomic u64`.
fn variable(symbol: &str, text: &str) -> Option<String> {
    let (_, mut ty) = text.split_once(':')?;
    let mut lengths = String::new();
    while let Some((element, length)) = array(ty) {
        lengths.push_str(&format!("[{length}]"));
        ty = element;
    }
    Some(format!("extern {} {symbol}{lengths};", value(ty)?))
}

/// Element and length of `[T;N]`.
fn array(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.strip_suffix(']')?.rsplit_once(';')
}

/// The return type; a result returned by pointer becomes one more parameter.
fn result_type(text: &str, params: &mut Vec<String>) -> Option<String> {
    if text == "()" {
        return Some("void".into());
    }
    if let Some(inner) = wrapped("Option<", text) {
        if inner.starts_with("extern fn") {
            return function(inner, "");
        }
        if let Some(element) = slice(inner) {
            params.push("size_t *".into());
            return element;
        }
        if inner.starts_with('&') {
            return pointer(inner);
        }
        params.push(pointed(&value_or_array(inner)?));
        return Some("uint8_t".into());
    }
    if let Some(inner) = wrapped("Result<", text) {
        let ok = split(inner).next()?;
        if let Some(element) = slice(ok) {
            params.push(pointed(&element?));
            params.push("size_t *".into());
        } else if ok != "()" {
            params.push(pointed(&value_or_array(ok).or_else(|| pointer(ok))?));
        }
        return Some("int32_t".into());
    }
    if let Some(element) = slice(text) {
        params.push("size_t *".into());
        return element;
    }
    value(text).or_else(|| pointer(text)).or_else(|| raw(text, ""))
}

fn parameter(text: &str, out: &mut Vec<String>) -> Option<()> {
    match text {
        "&self" | "&mut self" | "..." => {
            out.push(match text {
                "&self" => "const void *self".into(),
                "&mut self" => "void *self".into(),
                other => other.into(),
            });
            return Some(());
        }
        _ => {}
    }
    let text = match wrapped("Option<", text) {
        Some(inner) if inner.starts_with('&') || inner.starts_with("extern fn") => inner,
        Some(inner) => {
            out.push(pointed(&format!("const {}", value_or_array(inner)?)));
            return Some(());
        }
        None => text,
    };
    if let Some(signature) = text
        .strip_prefix("&mut FnMut")
        .or_else(|| text.strip_prefix("&Fn"))
    {
        out.push(callback(signature)?);
        out.push("void *".into());
        return Some(());
    }
    if let Some(value) = value(text).or_else(|| raw(text, "")) {
        out.push(value);
        return Some(());
    }
    match slice(text) {
        Some(element) => {
            out.push(element?);
            out.push("size_t".into());
        }
        None => out.push(pointer(text)?),
    }
    Some(())
}

/// The text inside `Option<..>` or `Result<..>`.
fn wrapped<'t>(open: &str, text: &'t str) -> Option<&'t str> {
    text.strip_prefix(open)?.strip_suffix('>')
}

/// The pointer to the first element of a slice or a string, if `text` is one.
fn slice(text: &str) -> Option<Option<String>> {
    let (referent, constant) = referent(text)?;
    let element = match referent {
        "str" => Some("char".to_owned()),
        _ => {
            let inner = referent.strip_prefix('[')?.strip_suffix(']')?;
            if array(referent).is_some_and(|(_, length)| length.bytes().all(|b| b.is_ascii_digit())) {
                return None;
            }
            value(inner)
        }
    };
    Some(element.map(|element| pointed(&format!("{constant}{element}"))))
}

/// The function pointer of a callback: its data is its first argument. `signature` is `(&[u8])->ControlFlow<()>`.
fn callback(signature: &str) -> Option<String> {
    let (params, rest) = enclosed(signature)?;
    let mut c_params = vec!["void *".to_owned()];
    for param in split(params) {
        parameter(param, &mut c_params)?;
    }
    let result = match rest.strip_prefix("->") {
        None => "void",
        Some("ControlFlow<()>") => "uint8_t",
        Some(option) => {
            c_params.push(pointed(&value_or_array(wrapped("Option<", option)?)?));
            "uint8_t"
        }
    };
    Some(format!("{result} (*)({})", c_params.join(", ")))
}

/// A raw pointer or a function pointer.
fn raw(text: &str, name: &str) -> Option<String> {
    if text.starts_with("extern fn") {
        return function(text, name);
    }
    let (inner, constant) = match text.strip_prefix("*const ") {
        Some(inner) => (inner, "const "),
        None => (text.strip_prefix("*mut ")?, ""),
    };
    if inner == "void" {
        return Some(format!("{constant}void *"));
    }
    if inner.starts_with('*') {
        return Some(pointed(&format!("{}{}", raw(inner, "")?, constant.trim_end())));
    }
    Some(pointed(&format!("{constant}{}", value_or_array(inner)?)))
}

/// `extern fn(*const void)->i32`.
fn function(text: &str, name: &str) -> Option<String> {
    let (params, rest) = enclosed(text.strip_prefix("extern fn")?)?;
    let of = |text: &str| value(text).or_else(|| raw(text, ""));
    let params: Option<Vec<String>> = split(params).map(of).collect();
    let result = match rest.strip_prefix("->") {
        None => "void".into(),
        Some(result) => of(result)?,
    };
    Some(format!("{result} (*{name})({})", params?.join(", ")))
}

/// A value, or the element of an array of them: what a pointer points to.
fn value_or_array(text: &str) -> Option<String> {
    match array(text) {
        Some((element, _)) => value_or_array(element),
        None => value(text),
    }
}

/// `&T` and `&mut T` of a sized type.
fn pointer(text: &str) -> Option<String> {
    let (referent, constant) = referent(text)?;
    Some(pointed(&format!("{constant}{}", value_or_array(referent)?)))
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
        "char" => "uint32_t",
        _ if text.starts_with("atomic ") => return Some(format!("_Atomic {}", value(&text[7..])?)),
        // An enum crosses as its integer: `enum Order:u8{..}`.
        _ if text.starts_with("enum ") => {
            let (_, repr) = text.split_once(':')?;
            return value(repr.split('{').next()?);
        }
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
    let mut before = ' ';
    text.split(move |c: char| {
        let is_arrow = std::mem::replace(&mut before, c) == '-' && c == '>';
        match c {
            _ if is_arrow => {}
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
            (
                "fn f(&mut self,&[u8],enum Order:u8{Up=0}[1,1])->Result<&str,i32>",
                "int32_t f(void *self, const uint8_t *, size_t, uint8_t, const char **, size_t *);",
            ),
            (
                "fn f(&self,&[u8],&mut FnMut(&[u8],u32)->ControlFlow<()>)",
                "void f(const void *self, const uint8_t *, size_t, uint8_t (*)(void *, const uint8_t *, size_t, uint32_t), void *);",
            ),
            (
                "fn f(&Fn(&str)->Option<u64>,Option<struct P{0:x:f64}[8,8]>)->Option<&[u16]>",
                "const uint16_t *f(uint8_t (*)(void *, const char *, size_t, uint64_t *), void *, const struct P *, size_t *);",
            ),
            (
                "fn f(struct P{0:x:f64}[8,8])->struct P{0:x:f64}[8,8]",
                "struct P f(struct P);",
            ),
            (
                "unsafe fn f(*mut void,Option<extern fn(*const void)->i32>,*const *mut u8,...)->i32",
                "int32_t f(void *, int32_t (*)(const void *), uint8_t *const *, ...);",
            ),
            (
                "fn f(&[u64;4])->Option<[u8;2]>",
                "uint8_t f(const uint64_t *, uint8_t *);",
            ),
            ("static f:[atomic u32;8]", "extern _Atomic uint32_t f[8];"),
            ("static mut f:struct P{0:x:f64}[8,8]", "extern struct P f;"),
        ];
        for (text, c) in cases {
            assert_eq!(of("f", text).as_deref(), Some(c), "{text}");
        }
        assert_eq!(of("f", "fn f(&dyn Any)"), None);
        assert_eq!(of("f", "nonsense"), None);
    }
}
