//! What the mutated crates ask: which mutant is active.

use std::path::Path;

/// Number of no mutant.
pub(crate) const NONE: u32 = 0;
/// The tests write which mutants they reach, to the file that `REACHED` names.
pub(crate) const RECORD: u32 = 1_000_000;
/// The environment variable of a recording.
pub(crate) const REACHED: &str = "IFUNC_MUTANTS_REACHED";
/// The environment variable of the number, which is asked before the file.
pub(crate) const NUMBER: &str = "IFUNC_MUTANTS_NUMBER";

/// The module that is appended to the root of a crate. A file says which mutant is active: processes that tests start may have no
/// environment. It is read before `main`: what runs in a sandbox later may read no file. Where all have one, it says so instead, and
/// several mutants are tried at a time.
pub(crate) fn module(active: &Path, count: usize) -> String {
    let length = count + 1;
    format!(
        r##"
#[doc(hidden)]
#[allow(warnings, clippy::all)]
pub mod ifunc_mutants {{
    extern crate std;
    use std::io::Write as _;
    use std::sync::atomic::{{AtomicBool, AtomicU32, Ordering::Relaxed}};
    static ACTIVE: AtomicU32 = AtomicU32::new(u32::MAX);
    static REACHED: [AtomicBool; {length}] = [const {{ AtomicBool::new(false) }}; {length}];
    #[used]
    #[unsafe(link_section = ".init_array")]
    static INIT: extern "C" fn() = init;
    extern "C" fn init() {{
        let text = std::env::var("{NUMBER}").ok().or_else(|| std::fs::read_to_string({active:?}).ok());
        ACTIVE.store(text.and_then(|text| text.trim().parse().ok()).unwrap_or({NONE}), Relaxed);
    }}
    #[inline]
    pub fn on(number: u32) -> bool {{
        match ACTIVE.load(Relaxed) {{
            u32::MAX => init(),
            {RECORD} => reached(number),
            _ => {{}}
        }}
        ACTIVE.load(Relaxed) == number
    }}
    #[cold]
    fn reached(number: u32) {{
        if REACHED[number as usize].swap(true, Relaxed) {{
            return;
        }}
        if let Some(path) = std::env::var_os("{REACHED}") {{
            if let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path) {{
                let _ = file.write_all(std::format!("{{number}}\n").as_bytes());
            }}
        }}
    }}
}}
"##
    )
}

/// The root of a crate with that module.
pub(crate) fn root_with(source: &str, active: &Path, count: usize) -> String {
    // The module has an attribute that counts as unsafe code.
    source.replace("#![forbid(unsafe_code)]", "") + &module(active, count)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_module_is_rust() {
        let text = super::root_with("#![forbid(unsafe_code)]\nmod a;\n", "/a b/c".as_ref(), 7);
        syn::parse_file(&text).unwrap();
        assert!(!text.contains("forbid") && text.contains("[AtomicBool; 8]"));
    }
}
