//! The records that the attributes left in a package's archive.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ifunc_abi::Fingerprint;
use ifunc_abi::meta::{Record, records};
use ifunc_abi::symbols::META_SECTION;
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection};

use crate::BuildError;
use crate::c::entries_of;
use ifunc_link::InputError;

/// An ifunc of the package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ifunc {
    pub(super) name: String,
    pub(super) payload: String,
    pub(super) target: String,
    pub(super) answer: String,
    pub(super) align: u32,
    pub(super) idempotent: bool,
    pub(super) pinned: bool,
    pub(super) shared: bool,
}

/// The records of an archive.
#[derive(Clone, Debug, Default)]
pub(super) struct Records {
    /// The package's own ifuncs, by name, without those of its dependencies.
    pub(super) ifuncs: Vec<Ifunc>,
    /// Those of its dependencies, by name: entries of the images whose code names them.
    pub(super) others: Vec<Ifunc>,
    /// Symbol to signature, from every crate.
    pub(super) imports: BTreeMap<String, String>,
}

impl Records {
    /// Reads every member of an archive that is an object. `of` names its package; with `crate_name`, the ifuncs of
    /// other crates are not its own.
    pub(super) fn read(archive: &[u8], of: &str, crate_name: Option<&str>) -> Result<Self, BuildError> {
        let malformed = |e: object::Error| {
            BuildError::Input(InputError {
                name: of.into(),
                reason: e.to_string(),
            })
        };
        let mut all = Self::default();
        for member in ArchiveFile::parse(archive).map_err(malformed)?.members() {
            let data = member.map_err(malformed)?.data(archive).map_err(malformed)?;
            // Members that are not objects hold metadata of rustc.
            let Ok(object) = object::File::parse(data) else {
                continue;
            };
            for section in object.sections().filter(|s| s.name() == Ok(META_SECTION)) {
                let bytes = section.data().map_err(malformed)?;
                all.add(bytes, of, crate_name)?;
            }
        }
        for ifuncs in [&mut all.ifuncs, &mut all.others] {
            ifuncs.sort_by(|a, b| a.name.cmp(&b.name));
            ifuncs.dedup();
        }
        Ok(all)
    }

    fn add(&mut self, section: &[u8], of: &str, crate_name: Option<&str>) -> Result<(), BuildError> {
        for record in records(section) {
            match record {
                Ok(Record::Ifunc(ifunc)) => {
                    let ifuncs = match crate_name {
                        Some(name) if ifunc.crate_name != name => &mut self.others,
                        _ => &mut self.ifuncs,
                    };
                    ifuncs.push(Ifunc {
                        name: ifunc.name.into(),
                        payload: ifunc.payload.into(),
                        target: ifunc.target.into(),
                        answer: ifunc.answer.into(),
                        align: ifunc.align,
                        idempotent: ifunc.idempotent,
                        pinned: ifunc.pinned,
                        shared: ifunc.shared,
                    });
                }
                Ok(Record::Import(import)) => {
                    self.declare(import.symbol, import.signature, of)?;
                }
                Err(source) => {
                    return Err(BuildError::Meta {
                        package: of.into(),
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    fn declare(&mut self, symbol: &str, signature: &str, of: &str) -> Result<(), BuildError> {
        match self.imports.get(symbol) {
            Some(known) if known != signature => Err(BuildError::ImportConflict {
                package: of.into(),
                symbol: symbol.into(),
                first: known.clone(),
                second: signature.into(),
            }),
            _ => {
                self.imports.insert(symbol.into(), signature.into());
                Ok(())
            }
        }
    }
}

/// Whether the text of an import is that of a variable.
pub(super) fn is_variable(text: &str) -> bool {
    text.starts_with("static ")
}

/// Fingerprint of a text.
pub(crate) fn fingerprint(text: &str) -> Fingerprint {
    ifunc_abi::fingerprint(blake3::hash(text.as_bytes()).as_bytes())
}

/// The text that a library carries beside the image: of its entries and its imports.
pub(super) fn about_text(records: &Records, image: &[u8], imports: &[String]) -> String {
    let signatures = &records.imports;
    let mut text = String::new();
    for name in entries_of(image) {
        let mut known = records.ifuncs.iter().chain(&records.others);
        if let Some(ifunc) = known.find(|ifunc| ifunc.name == name) {
            let _ = writeln!(
                text,
                "entry {}\npayload {}\ntarget {}\nanswer {}\nconvention bound",
                ifunc.name, ifunc.payload, ifunc.target, ifunc.answer
            );
        }
    }
    for symbol in imports {
        if let Some(signature) = signatures.get(symbol) {
            let _ = writeln!(text, "import {symbol} {signature}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_cannot_be_read_or_contradict_each_other_are_refused() {
        let read = |section: &[u8]| Records::default().add(section, "hello", None).unwrap_err();
        let error = read(b"ifunc 9\nname add\n\0");
        assert!(
            matches!(&error, BuildError::Meta { package, .. } if package == "hello"),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with(
                "package `hello`: section `.ifunc.meta` holds a record of another SDK version; help: "
            ),
            "{text}"
        );

        let error = read(
            b"import 1\nsymbol put\ncrate one\nsignature fn put(u64)\n\0import 1\nsymbol put\ncrate two\nsignature fn put(u32)\n\0",
        );
        assert!(
            matches!(&error, BuildError::ImportConflict { symbol, .. } if symbol == "put"),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("`put` is declared twice, as\n  fn put(u64)\n  fn put(u32)\nhelp: make both declarations the same"),
            "{text}"
        );
    }
}
