//! `inspect --size`: what takes the bytes of an image. Every byte is counted once, and the sum is what travels.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use ifunc_abi::image::{Image, RawHeader, RawImport, RawImportReloc, RawRelative, RawStr, Relocation};
use serde::Serialize;

use super::symbols::{self, Symbol};

const NAME: Style = Style::new().bold();
const FIELD: Style = AnsiColor::Cyan.on_default();

/// More items are summed up; `--json` has them all.
const LISTED: usize = 24;
/// Characters of a text that are shown.
const QUOTED: usize = 40;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Function,
    /// What the linker made: ways to imports, the slot, cells.
    Import,
    String,
    /// The path of a source file, for panics.
    PanicPath,
    /// File, line and column of something that may panic.
    PanicLocation,
    Constant,
    /// The read-write part.
    Data,
    Header,
    ImportTable,
    Relocations,
    /// Names of the ifunc, its imports and libraries.
    Names,
    /// Between items, for alignment; or what nothing names.
    Padding,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Function => "functions",
            Self::Import => "ways to imports",
            Self::String => "strings",
            Self::PanicPath => "paths of panic locations",
            Self::PanicLocation => "panic locations",
            Self::Constant => "constants",
            Self::Data => "data",
            Self::Header => "header",
            Self::ImportTable => "import table",
            Self::Relocations => "relocations",
            Self::Names => "names",
            Self::Padding => "padding",
        }
    }
}

#[derive(Debug, Serialize)]
struct Item {
    kind: Kind,
    name: String,
    /// The crate that a Rust name belongs to.
    #[serde(rename = "crate")]
    of_crate: Option<String>,
    /// In the image's address space; none for what only the file has.
    offset: Option<u64>,
    bytes: u64,
}

/// What takes the bytes; the shape of `--size --json`.
#[derive(Debug, Serialize)]
pub(super) struct Size {
    name: String,
    image_bytes: u64,
    /// Whether the library says what its code and data are.
    symbols: bool,
    by_kind: Vec<Sum>,
    by_crate: Vec<Sum>,
    /// Largest first.
    items: Vec<Item>,
}

#[derive(Debug, Serialize)]
struct Sum {
    name: String,
    bytes: u64,
}

impl Size {
    /// Counts the bytes of `image`, of `len` bytes, whose debug_object is `debug_object`.
    pub(super) fn new(image: &Image<'_>, len: usize, debug_object: &[u8]) -> Self {
        let symbols = symbols::of_debug_object(debug_object, image);
        let known = !symbols.is_empty();
        let mut items = tables(image.header());
        let rx = image.rx().len() as u64;
        let locations = Locations::of(image);
        let symbols = match known {
            true => symbols,
            // What nothing names is code, or what code refers to.
            false => vec![Symbol {
                at: 0,
                size: rx,
                name: format!("{}_main, and what it reaches", image.name()),
                code: true,
            }],
        };
        part(image, &symbols, 0..rx, &mut items, |symbol| {
            locations.kind(symbol, image)
        });
        if let Some((at, _)) = image.rw_range() {
            let end = u64::from(at) + image.rw().len() as u64;
            part(image, &symbols, u64::from(at)..end, &mut items, |_| Kind::Data);
        }
        items.sort_by(|a, b| (b.bytes, a.offset, &a.name).cmp(&(a.bytes, b.offset, &b.name)));
        let by_kind = sums(&items, |item| item.kind.name().to_owned());
        let by_crate = sums(&items, |item| {
            let named = matches!(item.kind, Kind::Function | Kind::Constant | Kind::Data);
            match (&item.of_crate, named) {
                (Some(name), _) => name.clone(),
                (None, true) => "(C names)".into(),
                (None, false) => format!("({})", item.kind.name()),
            }
        });
        Self {
            name: image.name().to_owned(),
            image_bytes: len as u64,
            symbols: known,
            by_kind,
            by_crate,
            items,
        }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let whole = self.image_bytes;
        writeln!(out, "{NAME}{}{NAME:#}: {whole} bytes", self.name)?;
        if !self.symbols {
            writeln!(
                out,
                "its code and data have no names here: inspect the library (`.so`) that `cargo ifunc build` made"
            )?;
        }
        for (title, sums) in [("by kind", &self.by_kind), ("by crate", &self.by_crate)] {
            writeln!(out, "{FIELD}{title}{FIELD:#}")?;
            for sum in sums {
                line(out, sum.bytes, whole, &sum.name)?;
            }
        }
        writeln!(out, "{FIELD}by item{FIELD:#}")?;
        for item in self.items.iter().take(LISTED) {
            line(out, item.bytes, whole, &item.name)?;
        }
        let rest: u64 = self.items.iter().skip(LISTED).map(|item| item.bytes).sum();
        match self.items.len().saturating_sub(LISTED) {
            0 => {}
            more => line(
                out,
                rest,
                whole,
                &format!("{more} smaller ones (--json lists them)"),
            )?,
        }
        line(out, self.items.iter().map(|item| item.bytes).sum(), whole, "sum")
    }
}

fn line(out: &mut dyn Write, bytes: u64, whole: u64, what: &str) -> io::Result<()> {
    let share = bytes as f64 * 100.0 / whole.max(1) as f64;
    writeln!(out, "{bytes:>10}  {share:>5.1} %  {what}")
}

fn sums(items: &[Item], key: impl Fn(&Item) -> String) -> Vec<Sum> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for item in items {
        *all.entry(key(item)).or_default() += item.bytes;
    }
    let mut all: Vec<Sum> = all.into_iter().map(|(name, bytes)| Sum { name, bytes }).collect();
    all.sort_by(|a, b| (b.bytes, &a.name).cmp(&(a.bytes, &b.name)));
    all
}

/// What stands before the code.
fn tables(header: &RawHeader) -> Vec<Item> {
    let of = |count: u64, each: usize| count * each as u64;
    let imports = u64::from(header.import_count.get());
    let relative = of(u64::from(header.relative_count.get()), size_of::<RawRelative>());
    let import_relocs = of(
        u64::from(header.import_reloc_count.get()),
        size_of::<RawImportReloc>(),
    );
    let needed = of(u64::from(header.needed_count.get()), size_of::<RawStr>());
    [
        (Kind::Header, "header", size_of::<RawHeader>() as u64),
        (
            Kind::ImportTable,
            "import table",
            of(imports, size_of::<RawImport>()),
        ),
        (Kind::Relocations, "RELATIVE relocations", relative),
        (Kind::Relocations, "IMPORT relocations", import_relocs),
        (Kind::Names, "needed libraries", needed),
        (
            Kind::Names,
            "names of the ifunc, its imports and needed libraries",
            u64::from(header.strings_len.get()),
        ),
    ]
    .into_iter()
    .filter(|(_, _, bytes)| *bytes != 0)
    .map(|(kind, name, bytes)| Item {
        kind,
        name: name.into(),
        of_crate: None,
        offset: None,
        bytes,
    })
    .collect()
}

/// Cuts `from..to` into items. Where symbols overlap, a byte belongs to the one that begins first.
fn part(
    image: &Image<'_>,
    symbols: &[Symbol],
    range: Range<u64>,
    items: &mut Vec<Item>,
    kind: impl Fn(&Symbol) -> Kind,
) {
    let (mut at, to) = (range.start, range.end);
    let padding = |at: u64, bytes: u64| Item {
        kind: Kind::Padding,
        name: "padding".into(),
        of_crate: None,
        offset: Some(at),
        bytes,
    };
    for symbol in symbols.iter().filter(|symbol| range.contains(&symbol.at)) {
        let end = symbol.end().min(to);
        let start = symbol.at.max(at);
        if end <= start {
            continue;
        }
        if start > at {
            items.push(padding(at, start - at));
        }
        let kind = kind(symbol);
        let named = matches!(kind, Kind::Function | Kind::Constant | Kind::Data | Kind::Import);
        let name = symbol.shown();
        items.push(Item {
            kind,
            of_crate: crate_of(&symbol.name, &name).filter(|_| kind != Kind::Import),
            name: match (quoted(image, symbol), named && !name.contains(".Lanon.")) {
                (Some(text), _) if matches!(kind, Kind::String | Kind::PanicPath) => text,
                (_, true) => name,
                _ => format!("{} at {:#x}", kind.name(), symbol.at),
            },
            offset: Some(symbol.at),
            bytes: end - start,
        });
        at = end;
    }
    if at < to {
        items.push(padding(at, to - at));
    }
}

/// Words in Rust names that are none of a crate.
const NO_CRATES: [&str; 23] = [
    "dyn", "mut", "const", "as", "impl", "for", "bool", "char", "str", "u8", "u16", "u32", "u64", "u128",
    "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64",
];

/// The text of a string, as far as a line has room for it.
fn quoted(image: &Image<'_>, symbol: &Symbol) -> Option<String> {
    let text = std::str::from_utf8(symbols::bytes_at(image, symbol.at, symbol.size)?).ok()?;
    let text = text.trim_end_matches('\0');
    let shown: String = text.chars().take(QUOTED).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    Some(format!("{shown:?}{more}"))
}

/// The crate of a Rust name: the first word of `<core::fmt::Arguments as core::fmt::Display>::fmt`.
fn crate_of(mangled: &str, shown: &str) -> Option<String> {
    if mangled == shown || !shown.contains("::") {
        return None;
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = shown
        .split(|c: char| !is_word(c))
        .filter(|word| !word.is_empty() && !NO_CRATES.contains(word));
    let word = words.find(|word| word.starts_with(|c: char| c.is_ascii_lowercase() || c == '_'))?;
    // Symbols of the compiler's own, such as the panic handler, have no crate.
    Some(if word == "__rustc" { "rustc" } else { word }.to_owned())
}

/// Where the image holds `core::panic::Location`s, and the paths they name.
struct Locations {
    /// Address to the address of its path.
    paths: BTreeMap<u64, u64>,
}

impl Locations {
    /// A location is a pointer to a path, its length, a line and a column.
    fn of(image: &Image<'_>) -> Self {
        let is_path = |at: u64, length: u64| {
            symbols::bytes_at(image, at, length)
                .and_then(|bytes| std::str::from_utf8(bytes).ok())
                .is_some_and(|text| text.ends_with(".rs"))
        };
        let paths = image.relocations().filter_map(|relocation| match relocation {
            Relocation::Relative { offset, addend } => {
                let (offset, path) = (u64::from(offset), u64::try_from(addend).ok()?);
                let length = symbols::bytes_at(image, offset + 8, 8)?;
                let length = u64::from_le_bytes(length.try_into().ok()?);
                (length < 4096 && is_path(path, length)).then_some((offset, path))
            }
            Relocation::Import { .. } => None,
        });
        Self {
            paths: paths.collect(),
        }
    }

    fn kind(&self, symbol: &Symbol, image: &Image<'_>) -> Kind {
        let made = symbol.name.ends_with("@plt")
            || symbol.name.ends_with("@load")
            || symbol.name.ends_with("@got")
            || Some(symbol.at) == image.slot().map(u64::from);
        if made {
            Kind::Import
        } else if symbol.code {
            Kind::Function
        } else if self.paths.contains_key(&symbol.at) {
            Kind::PanicLocation
        } else if self
            .paths
            .values()
            .any(|path| (symbol.at..symbol.end()).contains(path))
        {
            Kind::PanicPath
        } else if symbol.name.contains(".str") || is_text(symbol, image) {
            Kind::String
        } else {
            Kind::Constant
        }
    }
}

/// Whether what has no name of its own reads as text.
fn is_text(symbol: &Symbol, image: &Image<'_>) -> bool {
    symbol.name.starts_with('.')
        && symbol.size > 1
        && symbols::bytes_at(image, symbol.at, symbol.size)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .is_some_and(|text| text.chars().all(|c| !c.is_control() || c.is_whitespace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<u8> {
        let parts = ifunc_abi::image::ImageParts {
            name: "sized".into(),
            arch: ifunc_abi::image::ARCH_X86_64,
            rx: vec![0xc3; 32],
            ..Default::default()
        };
        parts.encode().expect("an image")
    }

    #[test]
    fn without_names_the_sum_is_the_image() {
        let bytes = image();
        let image = Image::parse(&bytes).expect("an image");
        let size = Size::new(&image, bytes.len(), &[]);
        assert!(!size.symbols);
        let sum: u64 = size.items.iter().map(|item| item.bytes).sum();
        assert_eq!((sum, size.image_bytes), (bytes.len() as u64, bytes.len() as u64));
    }

    fn symbol(at: u64, size: u64, name: &str) -> Symbol {
        Symbol {
            at,
            size,
            name: name.into(),
            code: true,
        }
    }

    #[test]
    fn every_byte_is_counted_once() {
        let symbols = [
            symbol(0, 10, "outer"),
            symbol(4, 2, "inside"),
            symbol(8, 8, "overlapping"),
            symbol(20, 4, "behind_a_gap"),
            symbol(24, 100, "beyond_the_end"),
        ];
        let mut items = Vec::new();
        let bytes = image();
        let image = Image::parse(&bytes).expect("an image");
        part(&image, &symbols, 0..32, &mut items, |_| Kind::Function);
        let seen: Vec<_> = items.iter().map(|item| (&*item.name, item.bytes)).collect();
        assert_eq!(
            seen,
            [
                ("outer", 10),
                ("overlapping", 6),
                ("padding", 4),
                ("behind_a_gap", 4),
                ("beyond_the_end", 8)
            ]
        );
        assert_eq!(items.iter().map(|item| item.bytes).sum::<u64>(), 32);
    }

    #[test]
    fn crates_are_the_first_word() {
        for (shown, of_crate) in [
            ("core::fmt::write", Some("core")),
            (
                "<ifunc::context::Line as core::fmt::Write>::write_str",
                Some("ifunc"),
            ),
            (
                "<&mut alloc::vec::Vec<u8> as core::fmt::Write>::write_str",
                Some("alloc"),
            ),
            ("<usize as core::fmt::Display>::fmt", Some("core")),
            ("<T as core::fmt::Write>::write_char", Some("core")),
            ("__rustc::rust_begin_unwind", Some("rustc")),
            ("memcpy", None),
        ] {
            assert_eq!(crate_of("_R", shown).as_deref(), of_crate, "{shown}");
        }
        assert_eq!(crate_of("a::b", "a::b"), None);
    }
}
