//! `inspect --disasm`: the code of an image, with names for the addresses in it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use iced_x86::{
    Decoder, DecoderOptions, FastFormatter, FlowControl, Instruction, Mnemonic, OpKind, Register,
    SymbolResolver, SymbolResult,
};
use ifunc_abi::image::{ARCH_X86_64, Image};

use super::flow;
use super::size::mains;
use super::symbols::{self, Symbol};
use crate::error::Failure;

const LABEL: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();
const NOTE: Style = AnsiColor::Green.on_default();

/// Width of an instruction's bytes and of its text, in columns.
const BYTES: usize = 30;
const TEXT: usize = 44;
/// Longest quoted text, in bytes.
const QUOTED: u64 = 48;

/// Prints the code of the `image` in the library of ifunc `name`, whose debug object is `debug_object`; `bytes` adds the bytes of each
/// instruction.
pub(super) fn print(
    image: &Image<'_>,
    name: &str,
    debug_object: &[u8],
    bytes: bool,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if image.arch() != ARCH_X86_64 {
        return Err(Failure::Message(format!(
            "the image of `{name}` is not for x86-64, the only architecture that can be disassembled\nhelp: `cargo ifunc inspect` without --disasm shows the rest"
        )));
    }
    let mut symbols = symbols::of_debug_object(debug_object, image);
    if symbols.is_empty() {
        writeln!(
            out,
            "{DIM}only code that control flow reaches from {} is shown: the library (`.so`) has more names{DIM:#}",
            mains(image)
        )?;
        symbols = flow::functions(image);
    }
    let names = Names::of(image, &symbols);
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
        function(image, symbol, &names, bytes, out)?;
    }
    Ok(())
}

fn function(
    image: &Image<'_>,
    symbol: &Symbol,
    names: &Names<'_>,
    bytes: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let code = symbols::bytes_at(image, symbol.at, symbol.size).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, code, symbol.at, DecoderOptions::NONE);
    let mut formatter: FastFormatter = FastFormatter::try_with_options(Some(Box::new(names.resolver())))
        .unwrap_or_else(|_| FastFormatter::new());
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_use_hex_prefix(true);
    formatter.options_mut().set_uppercase_hex(false);
    let mut got = GotRegister::default();
    let mut instruction = Instruction::default();
    let mut text = String::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        text.clear();
        formatter.format(&instruction, &mut text);
        let mut note = got.note(&instruction, names);
        if note.is_none() {
            note = names.note(&instruction);
        }
        write!(out, "{DIM}{:8x}:{DIM:#}  ", instruction.ip())?;
        if bytes {
            let at = (instruction.ip() - symbol.at) as usize;
            let raw = code.get(at..at + instruction.len()).unwrap_or_default();
            let hex: String = raw.iter().map(|byte| format!("{byte:02x} ")).collect();
            write!(out, "{DIM}{hex:BYTES$}{DIM:#}  ")?;
        }
        match note {
            Some(note) => writeln!(out, "{text:TEXT$}  {NOTE}; {note}{NOTE:#}")?,
            None => writeln!(out, "{text}")?,
        }
    }
    Ok(())
}

/// The register that holds the GOT's address, after code loads it from the slot.
#[derive(Debug, Default)]
pub(super) struct GotRegister(Option<Register>);

impl GotRegister {
    /// Describes how `instruction` uses the GOT: it loads the GOT's address or an entry.
    fn note(&mut self, instruction: &Instruction, names: &Names<'_>) -> Option<String> {
        if let Some(import) = self.step(instruction, names.slot) {
            return Some(match names.imports.get(import) {
                Some(name) => format!("import {name}"),
                None => format!("GOT entry {import}"),
            });
        }
        self.0
            .is_some_and(|_| loads(instruction, names.slot))
            .then(|| "the GOT".into())
    }

    /// The index of the import that `instruction` loads from the GOT.
    pub(super) fn step(&mut self, instruction: &Instruction, slot: Option<u64>) -> Option<usize> {
        let entry = self.0.filter(|register| {
            instruction.memory_base() == *register
                && instruction.memory_index() == Register::None
                && (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
        });
        let import = entry.map(|_| (instruction.memory_displacement64() / 8) as usize);
        if loads(instruction, slot) {
            self.0 = Some(instruction.op0_register());
        } else if import.is_some()
            || !matches!(instruction.flow_control(), FlowControl::Next)
            || Some(instruction.op0_register()) == self.0
        {
            self.0 = None;
        }
        import
    }
}

fn loads(instruction: &Instruction, slot: Option<u64>) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.is_ip_rel_memory_operand()
        && Some(instruction.ip_rel_memory_address()) == slot
}

/// Names by address.
struct Names<'i> {
    slot: Option<u64>,
    imports: Vec<String>,
    /// By address, the largest symbol that begins there: its length and name.
    symbols: BTreeMap<u64, (u64, String)>,
    /// Short texts, by address.
    texts: BTreeMap<u64, &'i str>,
}

impl<'i> Names<'i> {
    fn of(image: &Image<'i>, symbols: &[Symbol]) -> Self {
        let mut all = Self {
            slot: image.slot().map(u64::from),
            imports: image.imports().map(|import| import.symbol.to_owned()).collect(),
            symbols: BTreeMap::new(),
            texts: BTreeMap::new(),
        };
        for symbol in symbols {
            let text = symbols::bytes_at(image, symbol.at, symbol.size)
                .filter(|_| !symbol.code && symbol.name.starts_with('.') && symbol.size > 1)
                .and_then(|bytes| std::str::from_utf8(bytes).ok())
                .filter(|text| {
                    text.trim_end_matches('\0')
                        .chars()
                        .all(|c| !c.is_control() || c == '\n')
                });
            if let Some(text) = text {
                all.texts.insert(symbol.at, text.trim_end_matches('\0'));
            }
            all.symbols
                .entry(symbol.at)
                .or_insert_with(|| (symbol.size, symbol.shown()));
        }
        all
    }

    /// The text at the address that an instruction refers to, if the bytes are text.
    fn note(&self, instruction: &Instruction) -> Option<String> {
        if !instruction.is_ip_rel_memory_operand() {
            return None;
        }
        let address = instruction.ip_rel_memory_address();
        let (at, text) = self.texts.range(..=address).next_back()?;
        let rest = text.get(usize::try_from(address - at).ok()?..)?;
        if rest.is_empty() {
            return None;
        }
        let shown: String = rest.chars().take(QUOTED as usize).collect();
        let more = if shown.len() < rest.len() { "…" } else { "" };
        Some(format!("{shown:?}{more}"))
    }

    fn resolver(&self) -> Resolver {
        Resolver {
            symbols: self.symbols.clone(),
        }
    }
}

/// Provides the formatter with names.
struct Resolver {
    symbols: BTreeMap<u64, (u64, String)>,
}

impl SymbolResolver for Resolver {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        // Resolves addresses only: targets of branches, and operands relative to the instruction.
        let branch = instruction_operand.is_some_and(|op| {
            matches!(
                instruction.op_kind(op),
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
            )
        });
        if !branch && !instruction.is_ip_rel_memory_operand() {
            return None;
        }
        let (at, (size, name)) = self.symbols.range(..=address).next_back()?;
        // The formatter prints the offset within the symbol.
        (address == *at || address < at + size).then(|| SymbolResult::with_str(*at, name))
    }
}

#[cfg(test)]
mod tests {
    use ifunc_abi::image::{EntryPart, ImageParts, ImportFlags, ImportPart};

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
        let error = printed(ifunc_abi::image::ARCH_AARCH64, false).expect_err("it is not x86-64");
        assert!(error.to_string().contains("not for x86-64"), "{error}");
    }
}
