//! Whether images are slices of one library: whatever a source or a target may rely on is the same in each.

use crate::image::{Entry, Image, ImageFlags};

/// What two images state differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference<'a> {
    /// One has an entry that the other has not.
    #[error("its entries are other than those of the first slice: `{name}` is in one of them alone")]
    Entries {
        /// The entry.
        name: &'a str,
    },
    /// An entry differs.
    #[error("its entry `{name}` has {what} other than in the first slice")]
    Entry {
        /// The entry.
        name: &'a str,
        /// What differs.
        what: &'static str,
    },
    /// An import has another type.
    #[error("its import `{symbol}` has another type than in the first slice")]
    Import {
        /// The symbol.
        symbol: &'a str,
    },
    /// One is pinned and the other is not.
    #[error("it is declared `pinned` and the first slice is not, or the reverse")]
    Pinned,
}

/// Compares a slice with the first one. Imports may differ: one machine has an instruction for what another one calls a function for.
///
/// # Errors
/// The first difference.
pub fn agree<'a>(first: &Image<'a>, other: &Image<'a>) -> Result<(), Difference<'a>> {
    for (one, two) in [(first, other), (other, first)] {
        let mut entries = one.entries();
        if let Some(alone) = entries.find(|entry| two.entry(entry.name).is_none()) {
            return Err(Difference::Entries { name: alone.name });
        }
    }
    for (one, two) in first.entries().zip(other.entries()) {
        if let Some(what) = difference(&one, &two) {
            return Err(Difference::Entry { name: one.name, what });
        }
    }
    let is_pinned = |image: &Image<'_>| image.flags().contains(ImageFlags::PINNED);
    if is_pinned(first) != is_pinned(other) {
        return Err(Difference::Pinned);
    }
    for import in other.imports() {
        let differs = |known: crate::image::Import<'_>| {
            known.symbol == import.symbol && known.fingerprint != import.fingerprint
        };
        if first.imports().any(differs) {
            return Err(Difference::Import {
                symbol: import.symbol,
            });
        }
    }
    Ok(())
}

fn difference(one: &Entry<'_>, two: &Entry<'_>) -> Option<&'static str> {
    let facts = [
        (one.payload == two.payload, "a payload type"),
        (one.target == two.target, "a target type"),
        (one.answer == two.answer, "an answer type"),
        (
            one.payload_align == two.payload_align,
            "an alignment of the payload",
        ),
        (one.flags == two.flags, "declarations"),
    ];
    facts
        .into_iter()
        .find(|(is_same, _)| !is_same)
        .map(|(_, what)| what)
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;

    use super::*;
    use crate::image::{ARCH_X86_64, EntryFlags, EntryPart, ImageParts, ImportFlags, ImportPart};
    use std::string::ToString;
    use std::vec;

    fn parts() -> ImageParts {
        ImageParts {
            entries: vec![EntryPart {
                payload: 1,
                ..EntryPart::new("add")
            }],
            arch: ARCH_X86_64,
            rx_align_log2: 4,
            rx: vec![0xc3; 40],
            slot: Some(8),
            imports: vec![ImportPart {
                symbol: "log".into(),
                flags: ImportFlags::FUNCTION,
                fingerprint: 5,
            }],
            ..ImageParts::default()
        }
    }

    #[test]
    fn slices_differ_in_code_and_imports_alone() {
        let first = parts().encode().unwrap();
        let first = Image::parse(&first).unwrap();
        let compared = |change: fn(&mut ImageParts)| {
            let mut parts = parts();
            change(&mut parts);
            let bytes = parts.encode().unwrap();
            let other = Image::parse(&bytes).unwrap();
            agree(&first, &other).map_err(|difference| difference.to_string())
        };
        assert_eq!(compared(|parts| parts.cpu_features = 3), Ok(()));
        assert_eq!(compared(|parts| parts.imports[0].symbol = "fma".into()), Ok(()));
        assert_eq!(
            compared(|parts| (parts.imports, parts.slot) = (vec![], None)),
            Ok(())
        );
        type Change = fn(&mut ImageParts);
        let changes: [(Change, &str); 6] = [
            (
                |parts| parts.entries[0].name = "sub".into(),
                "its entries are other than those of the first slice: `add` is in one of them alone",
            ),
            (
                |parts| parts.entries[0].payload = 2,
                "its entry `add` has a payload type other",
            ),
            (
                |parts| parts.entries[0].answer = 2,
                "its entry `add` has an answer type other",
            ),
            (
                |parts| parts.entries[0].flags = EntryFlags::SHARED,
                "has declarations other",
            ),
            (
                |parts| parts.flags = ImageFlags::PINNED,
                "it is declared `pinned`",
            ),
            (
                |parts| parts.imports[0].fingerprint = 6,
                "its import `log` has another type",
            ),
        ];
        for (change, why) in changes {
            let found = compared(change).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }
}
