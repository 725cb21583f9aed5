//! All features of `core::fmt`.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use corpus_case::{Put, World, text, words};
use ifunc::prelude::*;

#[derive(Debug, Clone, Default)]
#[allow(dead_code, reason = "it is printed")]
struct Record<'a> {
    name: &'a str,
    value: Option<u64>,
    list: Vec<(u8, char)>,
    unit: (),
    nested: Option<Box<Record<'a>>>,
}

#[derive(Debug)]
#[allow(dead_code, reason = "they are printed")]
enum Kind {
    Unit,
    Tuple(i32, f32),
    Named { bytes: [u8; 3] },
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            f.write_str("0x")?;
        }
        for byte in self.0.iter().take(f.precision().unwrap_or(16)) {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::LowerHex for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad_integral(true, "0x", core::str::from_utf8(self.0).unwrap_or("?"))
    }
}

/// Derived and hand-written formatting, with widths, fills, signs and pretty printing.
#[ifunc]
pub fn formats(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let text = text(input);
    let name: String = text.chars().take(30).collect();
    let record = Record {
        name: &name,
        value: words(input).next(),
        list: input.iter().take(5).map(|b| (*b, char::from(*b))).collect(),
        unit: (),
        nested: Some(Box::new(Record::default())),
    };
    out.put(format!("{record:?}"));
    out.put(format!("{record:#?}"));
    for word in words(input).take(10).chain([world.seed]) {
        let kinds = [
            Kind::Unit,
            Kind::Tuple(word as i32, word as f32 / 8.0),
            Kind::Named {
                bytes: [word as u8, 2, 3],
            },
        ];
        out.put(format!("{kinds:?} {kinds:#x?}"));
        let (width, precision) = (word as usize % 20, word as usize % 7);
        out.put(format!(
            "{word:>width$}|{word:<25}|{word:^+25}|{word:#034b}|{:.*e}|{name:-^w2$.precision$}|{:p}",
            precision,
            word as f64,
            core::ptr::without_provenance::<u8>(word as usize),
            w2 = width + 5,
        ));
    }
    out.put(format!(
        "{} {:#.4} {:x}",
        Hex(input),
        Hex(input),
        Hex(&input[..input.len().min(3)])
    ));
    let map: BTreeMap<u8, &str> = input.iter().take(4).map(|b| (*b, "value")).collect();
    let queue: VecDeque<_> = input.iter().take(4).collect();
    out.put(format!(
        "{map:?} {map:#?} {queue:?} {:?} {:?}",
        name.chars(),
        Some(&name)
    ));
    out.put(format!(
        "{:?} {:?} {:?}",
        "tab\t\"quoted\" \u{1F980}\u{7f}",
        '\'',
        b"bytes\xff".escape_ascii().to_string_lossless()
    ));
    let mut sink = String::new();
    let written = write!(sink, "{}{}{}", input.len() as u8, -1_i128, input.is_empty())
        .and_then(|()| writeln!(sink, "{:?}", record.unit));
    out.put(written.is_ok());
    out.put(sink);
    out
}

trait Lossless {
    fn to_string_lossless(self) -> String;
}

impl<I: Iterator<Item = u8>> Lossless for I {
    fn to_string_lossless(self) -> String {
        self.map(char::from).collect()
    }
}

/// A writer of fixed capacity, which returns formatting errors.
struct FixedBuffer<'a>(&'a mut [u8], usize);

impl Write for FixedBuffer<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let end = self.1 + s.len();
        self.0
            .get_mut(self.1..end)
            .ok_or(fmt::Error)?
            .copy_from_slice(s.as_bytes());
        self.1 = end;
        Ok(())
    }
}

/// `fmt::Arguments` passed on to a fixed buffer, until it is full.
#[ifunc]
pub fn format_arguments(input: &[u8], world: &mut World) -> Vec<u8> {
    fn print(to: &mut dyn Write, what: fmt::Arguments<'_>) -> bool {
        to.write_fmt(what).is_ok()
    }
    let mut buffer = [0_u8; 200];
    let mut buffer = FixedBuffer(&mut buffer, 0);
    let mut out = Vec::new();
    for (index, word) in words(input).chain([world.seed]).enumerate().take(50) {
        let fits = print(
            &mut buffer,
            format_args!("{index}: {word:x}, {:?}; ", input.first()),
        );
        out.put(fits);
    }
    out.put(buffer.1);
    out.extend_from_slice(&buffer.0[..buffer.1]);
    out
}

corpus_case::cases! {
    formats: "formatting of everything", "derived Debug";
    format_arguments: "fmt::Arguments, dyn fmt::Write";
}
