//! `inspect --disasm`: the code of an image, with names for the addresses in it.

mod aarch64;
mod decoder;
mod names;
mod x86_64;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::rc::Rc;

use anstyle::{AnsiColor, Style};
use ifunc_abi::image::Image;

use decoder::Decoder;
pub(super) use decoder::{Flow, Target, of};
pub(super) use names::Names;

use super::flow;
use super::size::mains;
use super::symbols;
use crate::error::Failure;

const LABEL: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();
const NOTE: Style = AnsiColor::Green.on_default();

/// Width of an instruction's text, in columns.
const TEXT: usize = 44;

/// Prints the code of the `image` in the library of ifunc `name`, whose debug object is `debug_object`; `bytes` adds the bytes of each
/// instruction.
pub(super) fn print(
    image: &Image<'_>,
    name: &str,
    debug_object: &[u8],
    bytes: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let mut symbols = symbols::of_debug_object(debug_object, image);
    let is_stripped = symbols.is_empty();
    if is_stripped {
        symbols = flow::functions(image);
    }
    let names = Rc::new(Names::of(image, &symbols));
    let Some(mut decoder) = of(image, &names) else {
        return Err(Failure::Message(format!(
            "the image of `{name}` is for neither x86-64 nor AArch64, whose code alone can be disassembled\nhelp: `cargo ifunc inspect` without --disasm shows the rest"
        )));
    };
    if is_stripped {
        writeln!(
            out,
            "{DIM}only code that control flow reaches from {} is shown: the library (`.so`) has more names{DIM:#}",
            mains(image)
        )?;
    }
    let mut first = true;
    let mut done = 0;
    for symbol in symbols
        .iter()
        .filter(|s| s.code && s.at < image.rx().len() as u64)
    {
        if symbol.size == 0 || symbol.at < done {
            continue;
        }
        done = symbol.end();
        if !std::mem::take(&mut first) {
            writeln!(out)?;
        }
        writeln!(out, "{LABEL}{:08x} <{}>:{LABEL:#}", symbol.at, symbol.shown())?;
        let code = symbols::bytes_at(image, symbol.at, symbol.size).unwrap_or_default();
        function(code, symbol.at, &mut *decoder, &names, bytes, out)?;
    }
    Ok(())
}

fn function(
    code: &[u8],
    start: u64,
    decoder: &mut dyn Decoder,
    names: &Names,
    bytes: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut targets = BTreeSet::new();
    each(code, start, |rest, at| {
        let decoded = decoder.decode(rest, at);
        targets.extend(decoded.flow.target());
        Ok(decoded.len)
    })?;
    decoder.forget();
    each(code, start, |rest, at| {
        if targets.contains(&at) {
            decoder.forget();
        }
        let decoded = decoder.decode(rest, at);
        let text = decoder.text();
        write!(out, "{DIM}{at:8x}:{DIM:#}  ")?;
        if bytes {
            let raw = rest.get(..decoded.len).unwrap_or_default();
            let hex: String = raw.iter().map(|byte| format!("{byte:02x} ")).collect();
            let width = decoder.bytes_width();
            write!(out, "{DIM}{hex:width$}{DIM:#}  ")?;
        }
        match decoded.reference.and_then(|reference| names.note(reference)) {
            Some(note) => writeln!(out, "{text:TEXT$}  {NOTE}; {note}{NOTE:#}")?,
            None => writeln!(out, "{text}")?,
        }
        Ok(decoded.len)
    })
}

/// Calls `decode` with the code of each instruction and what comes after it; `decode` returns the instruction's length.
fn each(code: &[u8], start: u64, mut decode: impl FnMut(&[u8], u64) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = code.get(done..).filter(|rest| !rest.is_empty()) {
        done += decode(rest, start + done as u64)?.max(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ifunc_abi::image::{ARCH_X86_64, EntryPart, ImageParts, ImportFlags, ImportPart};

    use super::*;

    /// Calls its second import through a thunk.
    const CODE: [u8; 40] = [
        0xe8, 0x0b, 0, 0, 0, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, //
        0x4c, 0x8b, 0x1d, 0x09, 0, 0, 0, 0x41, 0xff, 0x63, 0x08, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, //
        0, 0, 0, 0, 0, 0, 0, 0,
    ];

    fn import(symbol: &str) -> ImportPart {
        ImportPart {
            symbol: symbol.into(),
            flags: ImportFlags::NONE,
            fingerprint: 0,
        }
    }

    fn printed(arch: u16, bytes: bool) -> Result<String, Failure> {
        let parts = ImageParts {
            entries: vec![EntryPart::new("calls")],
            arch,
            slot: Some(32),
            rx_align_log2: 4,
            rx: CODE.to_vec(),
            imports: vec![import("first"), import("second")],
            ..ImageParts::default()
        };
        let image = parts.encode().expect("an image");
        let mut out = Vec::new();
        let image = Image::parse(&image).expect("an image");
        print(&image, "calls", &[], bytes, &mut out)?;
        Ok(anstream::adapter::strip_str(&String::from_utf8(out).expect("text")).to_string())
    }

    #[test]
    fn control_flow_finds_thunks_and_their_imports() {
        let text = printed(ARCH_X86_64, false).expect("x86-64 code");
        assert!(
            text.contains("00000000 <calls_main>:\n       0:  call second@plt"),
            "{text}"
        );
        assert!(text.contains("00000010 <second@plt>:"), "{text}");
        let jump = text.lines().find(|line| line.contains("jmp")).expect("a jump");
        assert!(jump.ends_with("; import second"), "{text}");
        assert!(
            !text.contains("int3"),
            "bytes between functions were disassembled\n{text}"
        );
        let text = printed(ARCH_X86_64, true).expect("x86-64 code");
        assert!(text.contains("41 ff 63 08"), "{text}");
    }

    #[test]
    fn other_architectures_are_refused() {
        let error = printed(243, false).expect_err("RISC-V");
        assert!(error.to_string().contains("neither x86-64 nor"), "{error}");
    }
}
