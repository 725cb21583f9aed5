//! x86-64: code loads the GOT's address from the slot, and then reaches an entry by that register.

use std::rc::Rc;

use iced_x86::{
    Decoder as Iced, DecoderOptions, FastFormatter, FlowControl, Instruction, Mnemonic, OpKind, Register,
    SymbolResolver, SymbolResult,
};

use super::decoder::{Decoded, Decoder, Flow, Reference, Target};
use super::names::Names;

/// The decoder of x86-64.
pub(super) struct X86_64 {
    slot: Option<u64>,
    /// The register that holds the GOT's address, until it is used or written.
    got: Option<Register>,
    instruction: Instruction,
    formatter: FastFormatter,
}

impl X86_64 {
    pub(super) fn new(slot: Option<u64>, names: &Rc<Names>) -> Self {
        let resolver = Box::new(Resolver(Rc::clone(names)));
        let mut formatter: FastFormatter =
            FastFormatter::try_with_options(Some(resolver)).unwrap_or_else(|_| FastFormatter::new());
        formatter.options_mut().set_space_after_operand_separator(true);
        formatter.options_mut().set_use_hex_prefix(true);
        formatter.options_mut().set_uppercase_hex(false);
        Self {
            slot,
            got: None,
            instruction: Instruction::default(),
            formatter,
        }
    }

    /// The index of the import that the instruction loads from the GOT.
    fn entry(&mut self) -> Option<usize> {
        let instruction = &self.instruction;
        let entry = self.got.filter(|register| {
            instruction.memory_base() == *register
                && instruction.memory_index() == Register::None
                && (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
        });
        let import = entry.map(|_| (instruction.memory_displacement64() / 8) as usize);
        if self.loads_slot() {
            self.got = Some(instruction.op0_register());
        } else if import.is_some()
            || !matches!(instruction.flow_control(), FlowControl::Next)
            || Some(instruction.op0_register()) == self.got
        {
            self.got = None;
        }
        import
    }

    fn loads_slot(&self) -> bool {
        let instruction = &self.instruction;
        instruction.mnemonic() == Mnemonic::Mov
            && instruction.op0_kind() == OpKind::Register
            && instruction.is_ip_rel_memory_operand()
            && Some(instruction.ip_rel_memory_address()) == self.slot
    }

    fn flow(&self, import: Option<usize>) -> Flow {
        let instruction = &self.instruction;
        let is_near = (0..instruction.op_count()).any(|op| is_near_branch(instruction.op_kind(op)));
        let target = match (is_near, import) {
            (true, _) => Target::Address(instruction.near_branch_target()),
            (false, Some(import)) => Target::Import(import),
            (false, None) => Target::Unknown,
        };
        match instruction.flow_control() {
            FlowControl::Next => Flow::Next,
            FlowControl::Call | FlowControl::IndirectCall => Flow::Call(target),
            FlowControl::ConditionalBranch => Flow::Branch(instruction.near_branch_target()),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Flow::Jump(target),
            _ => Flow::End,
        }
    }
}

impl Decoder for X86_64 {
    fn decode(&mut self, code: &[u8], at: u64) -> Decoded {
        self.instruction = Iced::with_ip(64, code, at, DecoderOptions::NONE).decode();
        let import = self.entry();
        let instruction = &self.instruction;
        let reference = match import {
            Some(import) => Some(Reference::Entry(import)),
            None if self.loads_slot() => Some(Reference::Got),
            None if instruction.is_ip_rel_memory_operand() => {
                Some(Reference::Named(instruction.ip_rel_memory_address()))
            }
            None => None,
        };
        Decoded {
            len: instruction.len().max(1),
            is_valid: !instruction.is_invalid(),
            flow: self.flow(import),
            reference,
        }
    }

    fn text(&mut self) -> String {
        let mut text = String::new();
        self.formatter.format(&self.instruction, &mut text);
        text
    }

    fn forget(&mut self) {
        self.got = None;
    }

    fn bytes_width(&self) -> usize {
        30
    }
}

fn is_near_branch(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
}

/// Provides the formatter with names.
struct Resolver(Rc<Names>);

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
        let is_branch = instruction_operand.is_some_and(|op| is_near_branch(instruction.op_kind(op)));
        if !is_branch && !instruction.is_ip_rel_memory_operand() {
            return None;
        }
        // The formatter prints the offset within the symbol.
        let (at, name) = self.0.symbol(address)?;
        Some(SymbolResult::with_str(at, name))
    }
}
