//! The functions of an image without symbols: those that control flow reaches from its entries.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use ifunc_abi::image::Image;

use super::disasm::GotRegister;
use super::symbols::Symbol;

/// The entries and every function that they call, directly or indirectly, by address. Indirect jumps are not
/// followed.
pub(super) fn functions(image: &Image<'_>) -> Vec<Symbol> {
    let code = image.rx();
    let slot = image.slot().map(u64::from);
    let mut open: Vec<u64> = image.entries().map(|entry| u64::from(entry.main)).collect();
    let mut starts: BTreeSet<u64> = open.iter().copied().collect();
    // Each instruction's start and end.
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let mut thunks: BTreeMap<u64, usize> = BTreeMap::new();
    while let Some(from) = open.pop() {
        let mut at = from;
        let mut got = GotRegister::default();
        while let Some(rest) = usize::try_from(at).ok().and_then(|at| code.get(at..)) {
            if seen.contains_key(&at) {
                break;
            }
            let mut decoder = Decoder::with_ip(64, rest, at, DecoderOptions::NONE);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                break;
            }
            seen.insert(at, instruction.next_ip());
            if let Some(import) = got.step(&instruction, slot)
                && instruction.mnemonic() == Mnemonic::Jmp
            {
                thunks.insert(from, import);
            }
            let target = branch(&instruction, code.len() as u64);
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::IndirectCall => {}
                FlowControl::Call => {
                    if let Some(target) = target {
                        starts.insert(target);
                        open.push(target);
                    }
                }
                FlowControl::ConditionalBranch => open.extend(target),
                FlowControl::UnconditionalBranch => {
                    open.extend(target);
                    break;
                }
                _ => break,
            }
            at = instruction.next_ip();
        }
    }
    // A tail call looks like a jump within a function, but a jump to a thunk is a call.
    starts.extend(thunks.keys());
    named(image, &starts, &seen, &thunks)
}

fn named(
    image: &Image<'_>,
    starts: &BTreeSet<u64>,
    seen: &BTreeMap<u64, u64>,
    thunks: &BTreeMap<u64, usize>,
) -> Vec<Symbol> {
    let imports: Vec<&str> = image.imports().map(|import| import.symbol).collect();
    starts
        .iter()
        .filter_map(|&start| {
            // Extends to the next function, without the padding between them.
            let limit = starts.range(start + 1..).next().copied().unwrap_or(u64::MAX);
            let end = seen.range(start..limit).map(|(_, end)| *end).max()?;
            let entry = image.entries().find(|entry| u64::from(entry.main) == start);
            let import = thunks.get(&start).and_then(|import| imports.get(*import));
            let name = match (import, entry) {
                (Some(import), _) => format!("{import}@plt"),
                (None, Some(entry)) => format!("{}_main", entry.name),
                (None, None) => format!("function_{start:x}"),
            };
            Some(Symbol {
                at: start,
                size: end - start,
                name,
                code: true,
            })
        })
        .collect()
}

fn branch(instruction: &Instruction, len: u64) -> Option<u64> {
    let near = (0..instruction.op_count()).any(|op| {
        matches!(
            instruction.op_kind(op),
            OpKind::NearBranch32 | OpKind::NearBranch64
        )
    });
    let target = instruction.near_branch_target();
    (near && target < len).then_some(target)
}
