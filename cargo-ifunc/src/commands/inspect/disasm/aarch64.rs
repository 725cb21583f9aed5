//! AArch64: addresses take two instructions or more, so the decoder follows them through registers.

use std::rc::Rc;

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::decoder::{Decoded, Decoder, Flow, Reference, Target};
use super::names::Names;

/// Length of an instruction.
const LEN: usize = 4;
/// The page that `adrp` counts in.
const PAGE: u64 = 4096;
/// Registers that a call may change, beside x30.
const CALL_CLOBBERED: std::ops::Range<usize> = 0..19;
const LINK: usize = 30;

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// The address of the GOT, and an offset.
    Got(u64),
    /// The address of an import.
    Import(usize),
    /// An address in the image.
    Address(u64),
}

/// The decoder of AArch64.
pub(super) struct AArch64 {
    slot: Option<u64>,
    names: Rc<Names>,
    /// What x0 to x30 hold, as far as it is known. Number 31 is the stack pointer or zero.
    registers: [Option<Value>; 32],
    at: u64,
    word: Option<u32>,
    /// The address that the instruction states.
    stated: Option<u64>,
}

impl AArch64 {
    pub(super) fn new(slot: Option<u64>, names: &Rc<Names>) -> Self {
        Self {
            slot,
            names: Rc::clone(names),
            registers: [None; 32],
            at: 0,
            word: None,
            stated: None,
        }
    }

    fn set(&mut self, register: usize, value: Option<Value>) {
        if register != 31 {
            self.registers[register] = value;
        }
    }

    /// Follows an address through the instruction: what it refers to.
    fn follow(&mut self, word: u32) -> Option<Reference> {
        let (to, base) = (field(word, 0), field(word, 5));
        let is = |mask: u32, value: u32| word & mask == value;
        if is(0x1f00_0000, 0x1000_0000) {
            // adr, adrp
            let address = self.stated?;
            self.set(to, Some(Value::Address(address)));
            return Some(Reference::Named(address));
        }
        if is(0xff80_0000, 0x9100_0000) {
            // add xD, xN, #imm
            let shift = if is(0x0040_0000, 0x0040_0000) { 12 } else { 0 };
            let more = u64::from(word >> 10 & 0xfff) << shift;
            let sum = match self.registers[base] {
                Some(Value::Address(address)) => Some(Value::Address(address.wrapping_add(more))),
                Some(Value::Got(offset)) => Some(Value::Got(offset + more)),
                Some(Value::Import(_)) | None => None,
            };
            self.set(to, sum);
            return match sum {
                Some(Value::Address(address)) => Some(Reference::Computed(address)),
                _ => None,
            };
        }
        if is(0x3b00_0000, 0x3900_0000) {
            // A load or a store of a register, with an unsigned offset that counts its size.
            let is_wide = is(0x0480_0000, 0x0480_0000);
            let scale = if is_wide { 4 } else { word >> 30 };
            let offset = u64::from(word >> 10 & 0xfff) << scale;
            let (reference, loaded) = match self.registers[base] {
                Some(Value::Address(address)) => {
                    (Some(Reference::Computed(address.wrapping_add(offset))), None)
                }
                Some(Value::Got(start)) => {
                    let import = ((start + offset) / 8) as usize;
                    (Some(Reference::Entry(import)), Some(Value::Import(import)))
                }
                Some(Value::Import(_)) | None => (None, None),
            };
            let is_vector = is(0x0400_0000, 0x0400_0000);
            if !is_vector {
                self.set(to, loaded.filter(|_| is(0xffc0_0000, 0xf940_0000)));
            }
            return reference;
        }
        if is(0x3b00_0000, 0x1800_0000) {
            // ldr literal
            let address = self.stated?;
            let is_slot = is(0xff00_0000, 0x5800_0000) && Some(address) == self.slot;
            if !is(0x0400_0000, 0x0400_0000) {
                self.set(to, is_slot.then_some(Value::Got(0)));
            }
            return Some(match is_slot {
                true => Reference::Got,
                false => Reference::Named(address),
            });
        }
        self.overwrite(word);
        None
    }

    /// Forgets every register that an instruction may write, by the group that it belongs to.
    fn overwrite(&mut self, word: u32) {
        self.set(field(word, 0), None);
        // Data processing writes one register. Loads, stores and unknown groups may write others of their fields, or the
        // register after one of them.
        let writes_one =
            word >> 26 & 0b111 == 0b100 || word >> 25 & 0b111 == 0b101 || word >> 25 & 0b111 == 0b111;
        if !writes_one {
            for at in [0, 5, 10, 16] {
                self.set(field(word, at), None);
                self.set((field(word, at) + 1) % 32, None);
            }
        }
    }

    fn flow(&mut self, word: u32) -> Flow {
        let is = |mask: u32, value: u32| word & mask == value;
        let to = self.stated.map_or(Target::Unknown, Target::Address);
        if is(0xfc00_0000, 0x1400_0000) {
            Flow::Jump(to) // b
        } else if is(0xfc00_0000, 0x9400_0000) {
            Flow::Call(to) // bl
        } else if is(0xff00_0000, 0x5400_0000) || is(0x7c00_0000, 0x3400_0000) {
            self.stated.map_or(Flow::Next, Flow::Branch) // b.cond, cbz, tbz
        } else if is(0xfe00_0000, 0xd600_0000) {
            let to = match self.registers[field(word, 5)] {
                Some(Value::Import(import)) => Target::Import(import),
                Some(Value::Address(address)) => Target::Address(address),
                _ => Target::Unknown,
            };
            match word >> 21 & 0b111 {
                0b000 => Flow::Jump(to), // br
                0b001 => Flow::Call(to), // blr
                _ => Flow::End,          // ret
            }
        } else if is(0xffe0_001f, 0xd420_0000) || is(0xffff_0000, 0) {
            Flow::End // brk, udf
        } else {
            Flow::Next
        }
    }
}

impl Decoder for AArch64 {
    fn decode(&mut self, code: &[u8], at: u64) -> Decoded {
        self.at = at;
        self.word = code.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        self.stated = self.word.and_then(|word| stated(word, at));
        let Some(word) = self.word else {
            return Decoded {
                len: code.len(),
                is_valid: false,
                flow: Flow::End,
                reference: None,
            };
        };
        let flow = self.flow(word);
        let reference = match flow {
            Flow::Next => self.follow(word),
            _ => None,
        };
        match flow {
            Flow::Next | Flow::Branch(_) => {}
            Flow::Call(_) => {
                self.registers[CALL_CLOBBERED].fill(None);
                self.set(LINK, None);
            }
            Flow::Jump(_) | Flow::End => self.forget(),
        }
        Decoded {
            len: LEN,
            is_valid: true,
            flow,
            reference,
        }
    }

    fn text(&mut self) -> String {
        let Some(word) = self.word else {
            return "(cut off)".into();
        };
        let bytes = word.to_le_bytes();
        let decoded = InstDecoder::default().decode(&mut U8Reader::new(&bytes));
        let Ok(instruction) = decoded else {
            return format!(".inst {word:#010x}");
        };
        let text = instruction.to_string();
        // A distance, which comes last, is written as the address that it leads to.
        let distance = text.rfind("$+").or_else(|| text.rfind("$-"));
        match (distance, self.stated) {
            (Some(at), Some(address)) => {
                let is_page = address.is_multiple_of(PAGE) && is_address(word);
                let name = self.names.place(address).filter(|_| !is_page);
                let name = name.unwrap_or_else(|| format!("{address:#x}"));
                format!("{}{name}", &text[..at])
            }
            _ => text,
        }
    }

    fn forget(&mut self) {
        self.registers.fill(None);
    }

    fn bytes_width(&self) -> usize {
        3 * LEN
    }
}

/// The register whose number is at a bit.
fn field(word: u32, at: u32) -> usize {
    (word >> at & 0x1f) as usize
}

/// `adr` or `adrp`.
fn is_address(word: u32) -> bool {
    word & 0x1f00_0000 == 0x1000_0000
}

/// The address that an instruction at `at` states as a distance.
fn stated(word: u32, at: u64) -> Option<u64> {
    let is = |mask: u32, value: u32| word & mask == value;
    // A signed distance in words.
    let words = |bits: u32, low: u32| {
        let field = i64::from(word >> low) << (64 - bits) >> (64 - bits);
        at.wrapping_add_signed(field * 4)
    };
    Some(if is(0x7c00_0000, 0x1400_0000) {
        words(26, 0) // b, bl
    } else if is(0xff00_0000, 0x5400_0000) || is(0x7e00_0000, 0x3400_0000) || is(0x3b00_0000, 0x1800_0000) {
        words(19, 5) // b.cond, cbz, ldr literal
    } else if is(0x7e00_0000, 0x3600_0000) {
        words(14, 5) // tbz
    } else if is_address(word) {
        let low = i64::from(word >> 29 & 3);
        let distance = (i64::from(word >> 5) << 45 >> 43) | low;
        match is(0x8000_0000, 0x8000_0000) {
            true => (at & !(PAGE - 1)).wrapping_add_signed(distance << 12),
            false => at.wrapping_add_signed(distance),
        }
    } else {
        return None;
    })
}
