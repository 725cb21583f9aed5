//! The functions of an image without symbols: those that control flow reaches from its entries.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ifunc_abi::image::Image;

use super::disasm::{self, Flow, Target};
use super::symbols::Symbol;

/// The entries and every function that they call, directly or indirectly, by address. Jumps whose target is computed are not
/// followed. Empty for an architecture that is not known.
pub(super) fn functions(image: &Image<'_>) -> Vec<Symbol> {
    let code = image.rx();
    let Some(mut decoder) = disasm::of(image, &Rc::default()) else {
        return Vec::new();
    };
    let mut open: Vec<u64> = image.entries().map(|entry| u64::from(entry.main)).collect();
    let mut starts: BTreeSet<u64> = open.iter().copied().collect();
    // Each instruction's start and end.
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let mut thunks: BTreeMap<u64, usize> = BTreeMap::new();
    while let Some(from) = open.pop() {
        let mut at = from;
        decoder.forget();
        while let Some(rest) = usize::try_from(at).ok().and_then(|at| code.get(at..)) {
            if rest.is_empty() || seen.contains_key(&at) {
                break;
            }
            let decoded = decoder.decode(rest, at);
            if !decoded.is_valid {
                break;
            }
            let next = at + decoded.len as u64;
            seen.insert(at, next);
            open.extend(decoded.flow.target().filter(|to| *to < code.len() as u64));
            match decoded.flow {
                Flow::Call(Target::Address(to)) if to < code.len() as u64 => {
                    starts.insert(to);
                }
                Flow::Jump(Target::Import(import)) => {
                    thunks.insert(from, import);
                }
                _ => {}
            }
            if matches!(decoded.flow, Flow::Jump(_) | Flow::End) {
                break;
            }
            at = next;
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
            let name = match (entry, import) {
                (Some(entry), _) => format!("{}_main", entry.name),
                (None, Some(import)) => format!("{import}@plt"),
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
