//! Names and texts by address.

use std::collections::BTreeMap;

use ifunc_abi::image::Image;

use super::decoder::Reference;
use crate::commands::inspect::symbols::{self, Symbol};

/// Longest quoted text, in characters.
const QUOTED: usize = 48;

/// The names of an image.
#[derive(Debug, Default)]
pub(in super::super) struct Names {
    imports: Vec<String>,
    /// By address, the largest symbol that begins there: its length and name.
    symbols: BTreeMap<u64, (u64, String)>,
    /// Short texts, by address.
    texts: BTreeMap<u64, String>,
}

impl Names {
    pub(super) fn of(image: &Image<'_>, symbols: &[Symbol]) -> Self {
        let mut all = Self {
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
                all.texts.insert(symbol.at, text.trim_end_matches('\0').into());
            }
            all.symbols
                .entry(symbol.at)
                .or_insert_with(|| (symbol.size, symbol.shown()));
        }
        all
    }

    /// The symbol that holds an address: its start and name.
    pub(super) fn symbol(&self, address: u64) -> Option<(u64, &str)> {
        let (at, (size, name)) = self.symbols.range(..=address).next_back()?;
        (address == *at || address < at + size).then_some((*at, name))
    }

    /// The symbol that holds an address, and the offset in it.
    pub(super) fn place(&self, address: u64) -> Option<String> {
        let (at, name) = self.symbol(address)?;
        Some(match address - at {
            0 => name.to_owned(),
            offset => format!("{name}+{offset:#x}"),
        })
    }

    /// What an instruction refers to. The text of an instruction names an address that it states itself.
    pub(super) fn note(&self, reference: Reference) -> Option<String> {
        match reference {
            Reference::Got => Some("the GOT".into()),
            Reference::Entry(import) => Some(match self.imports.get(import) {
                Some(name) => format!("import {name}"),
                None => format!("GOT entry {import}"),
            }),
            Reference::Named(address) => self.quoted(address),
            Reference::Computed(address) => self.quoted(address).or_else(|| self.place(address)),
        }
    }

    /// The text at an address, if the bytes are text.
    fn quoted(&self, address: u64) -> Option<String> {
        let (at, text) = self.texts.range(..=address).next_back()?;
        let rest = text.get(usize::try_from(address - at).ok()?..)?;
        if rest.is_empty() {
            return None;
        }
        let shown: String = rest.chars().take(QUOTED).collect();
        let more = if shown.len() < rest.len() { "…" } else { "" };
        Some(format!("{shown:?}{more}"))
    }
}
