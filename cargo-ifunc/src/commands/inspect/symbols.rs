//! Symbols of an image: from the debug object in its library or, without one, from control flow and the
//! import table.

use ifunc_abi::image::Image;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// A symbol, with its offset in the image's address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) at: u64,
    pub(super) size: u64,
    /// The name in the object file.
    pub(super) name: String,
    pub(super) code: bool,
}

impl Symbol {
    pub(super) fn end(&self) -> u64 {
        self.at + self.size
    }

    /// The source name: Rust names are demangled, without their hash.
    pub(super) fn shown(&self) -> String {
        demangled(&self.name)
    }
}

/// The source name. A name inside a section's name, such as `.rodata.NAME`, is demangled too.
pub(super) fn demangled(name: &str) -> String {
    let mangled = name
        .find("_RNv")
        .or_else(|| name.find("_RIN"))
        .or_else(|| name.find("_ZN"));
    let inner = match mangled {
        Some(at) if name.starts_with('.') => &name[at..],
        _ => name,
    };
    let (inner, suffix) = inner.split_once('@').unwrap_or((inner, ""));
    let suffix = match suffix {
        "" => String::new(),
        suffix => format!("@{suffix}"),
    };
    match rustc_demangle::try_demangle(inner) {
        Ok(demangled) => format!("{demangled:#}{suffix}"),
        Err(_) => name.to_owned(),
    }
}

/// The symbols of the debug object, by address. Empty if there is none, or if it has another format.
pub(super) fn of_debug_object(debug_object: &[u8], image: &Image<'_>) -> Vec<Symbol> {
    let Ok(file) = object::File::parse(debug_object) else {
        return Vec::new();
    };
    let rw_at = image.rw_range().map(|(at, _)| u64::from(at));
    let mut all: Vec<Symbol> = file
        .symbols()
        .filter_map(|symbol| {
            let section = file.section_by_index(symbol.section_index()?).ok()?;
            let base = match section.name().ok()? {
                ".text" => 0,
                ".data" => rw_at?,
                _ => return None,
            };
            let code = match symbol.kind() {
                SymbolKind::Text => true,
                SymbolKind::Section => return None,
                _ => false,
            };
            Some(Symbol {
                at: base + symbol.address(),
                size: symbol.size(),
                name: symbol.name().ok().filter(|name| is_name(name))?.to_owned(),
                code,
            })
        })
        .collect();
    // Of symbols at one address, the largest contains the others.
    all.sort_by(|a, b| (a.at, b.size, &a.name).cmp(&(b.at, a.size, &b.name)));
    all
}

/// Whether it names something, and does not mark where code (`$x`) and data (`$d`) of AArch64 begin.
fn is_name(name: &str) -> bool {
    let is_mark = |mark: &str| {
        name.strip_prefix(mark)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    !name.is_empty() && !is_mark("$x") && !is_mark("$d")
}

/// The bytes at `at` that the image carries.
pub(super) fn bytes_at<'i>(image: &Image<'i>, at: u64, len: u64) -> Option<&'i [u8]> {
    let (part, start) = match image.rw_range() {
        Some((rw_at, _)) if at >= u64::from(rw_at) => (image.rw(), u64::from(rw_at)),
        _ => (image.rx(), 0),
    };
    let from = usize::try_from(at - start).ok()?;
    let to = from.checked_add(usize::try_from(len).ok()?)?;
    part.get(from..to)
}

#[cfg(test)]
mod tests {
    use super::{demangled, is_name};

    #[test]
    fn marks_of_code_and_data_are_no_names() {
        let names = ["", "$x", "$d", "$d.12", "$data", ".rodata.x", "$x_main"];
        assert_eq!(names.map(is_name), [false, false, false, false, true, true, true]);
    }

    #[test]
    fn names_are_demangled() {
        for (mangled, written) in [
            ("add_main", "add_main"),
            (
                "_ZN5ifunc5image5panic6report17h5fad11e513b7b926E",
                "ifunc::image::panic::report",
            ),
            (
                ".rodata._ZN5ifunc5image5panic6report17h5fad11e513b7b926E",
                "ifunc::image::panic::report",
            ),
            ("__ifunc_panic@plt", "__ifunc_panic@plt"),
            (".rodata.str1.1", ".rodata.str1.1"),
        ] {
            assert_eq!(demangled(mangled), written);
        }
    }
}
