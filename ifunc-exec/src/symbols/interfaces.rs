//! The interfaces that a target exports: for which host type each one is.

use std::any::TypeId;
use std::collections::BTreeMap;

use ifunc::host::{Export, HostType, INTERFACES, InterfaceExport};
use ifunc_abi::Fingerprint;

use super::{DuplicateExport, HostSymbols, Symbol};
use crate::fingerprint;

/// The interfaces that a target exports.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    by_fingerprint: BTreeMap<Fingerprint, Exported>,
    /// The host type of each method that is exported, by symbol. It does not change while the target lives.
    hosts: BTreeMap<String, HostType>,
}

#[derive(Clone, Debug)]
enum Exported {
    /// For one type. The builder chose it, or no other type of the process exports the interface.
    By(InterfaceExport),
    /// Several types of the process do, and the builder chose none.
    BySeveral(Vec<InterfaceExport>),
}

impl Interfaces {
    /// Those that one type only exports in this process, and the others by name.
    pub(super) fn of_process() -> Self {
        let mut all = Self::default();
        for export in INTERFACES {
            let key = fingerprint::of(export.interface());
            match all.by_fingerprint.get_mut(&key) {
                None => {
                    all.by_fingerprint.insert(key, Exported::By(*export));
                }
                Some(Exported::BySeveral(several)) => several.push(*export),
                Some(known) => {
                    let Exported::By(first) = *known else { continue };
                    *known = Exported::BySeveral(vec![first, *export]);
                }
            }
        }
        all
    }

    /// The methods of all interfaces that are exported for one type.
    pub(super) fn methods(&self) -> impl Iterator<Item = &'static Export> {
        let exports = self
            .by_fingerprint
            .values()
            .filter_map(|exported| match exported {
                Exported::By(export) => Some(export.methods()),
                Exported::BySeveral(_) => None,
            });
        exports.flatten()
    }

    /// Notes an export, if it is a method.
    pub(super) fn note(&mut self, export: &Symbol) {
        if let Some(host) = export.method_of() {
            self.hosts.insert(export.name().to_owned(), host);
        }
    }

    pub(super) fn forget(&mut self, symbol: &str) {
        self.hosts.remove(symbol);
    }

    /// The host type to which the symbol of this name takes a pointer; `None`: it is no method of an interface.
    #[must_use]
    pub fn host_of(&self, symbol: &str) -> Option<HostType> {
        self.hosts.get(symbol).copied()
    }

    /// The first of these symbols that is a method of another type than `host`. An image that imports it may call it with the
    /// target arguments, and so cannot run on a `host`, whether it states a target type or not.
    #[must_use]
    pub fn foreign_method<'a>(
        &self,
        symbols: impl IntoIterator<Item = &'a str>,
        host: TypeId,
    ) -> Option<&'a str> {
        if self.hosts.is_empty() {
            return None;
        }
        symbols
            .into_iter()
            .find(|symbol| self.host_of(symbol).is_some_and(|of| of.id() != host))
    }

    /// Why an image that imports the method `symbol` does not run on the host type named `host`, and what to do.
    #[must_use]
    pub fn explain_foreign(&self, symbol: &str, host: &str) -> String {
        let by = self.host_of(symbol).map_or("another type", |by| by.name());
        let interface = self.by_fingerprint.values().find_map(|exported| match exported {
            Exported::By(export) => export
                .methods()
                .iter()
                .any(|method| method.name() == symbol)
                .then(|| name_of(export)),
            Exported::BySeveral(_) => None,
        });
        let (of, choose) = match interface {
            Some(name) => (
                format!("the interface `{name}`"),
                format!(", or `Target::builder().export_interface::<dyn {name}, {host}>()`"),
            ),
            None => ("an interface".to_owned(), String::new()),
        };
        format!(
            "the image imports `{symbol}`, a method of {of}, which this target exports for `{by}`, and the target serves \
             `{host}`; help: serve a `{by}`{choose}"
        )
    }

    /// Whether the host type `host` exports the interface of this fingerprint.
    #[must_use]
    pub fn has(&self, interface: Fingerprint, host: TypeId) -> bool {
        matches!(self.by_fingerprint.get(&interface), Some(Exported::By(export)) if export.host().id() == host)
    }

    /// The texts of the interfaces that the host type `host` exports.
    pub fn of(&self, host: TypeId) -> impl Iterator<Item = &'static str> {
        self.by_fingerprint
            .values()
            .filter_map(move |exported| match exported {
                Exported::By(export) if export.host().id() == host => Some(export.interface()),
                _ => None,
            })
    }

    /// Why the host type named `host` does not export the interface of this fingerprint, where another type does, and what
    /// to do.
    #[must_use]
    pub fn explain(&self, interface: Fingerprint, host: &str) -> Option<String> {
        Some(match self.by_fingerprint.get(&interface)? {
            Exported::By(export) => {
                let (name, by) = (name_of(export), export.host().name());
                format!(
                    "this target exports `{name}` for `{by}`, and serves `{host}`; help: serve a `{by}`, or \
                     `Target::builder().export_interface::<dyn {name}, {host}>()`"
                )
            }
            Exported::BySeveral(several) => {
                let name = name_of(several.first()?);
                let by: Vec<String> = several
                    .iter()
                    .map(|export| format!("`{}`", export.host().name()))
                    .collect();
                format!(
                    "several types of the target's program export `{name}`: {}; help: choose one for this target: \
                     `Target::builder().export_interface::<dyn {name}, {host}>()`",
                    by.join(", ")
                )
            }
        })
    }
}

/// The name of an interface.
fn name_of(export: &InterfaceExport) -> &'static str {
    let text = export.interface();
    text.strip_prefix("interface ").unwrap_or(text)
}

impl HostSymbols {
    /// Exports an interface, for this type and no other: it takes the place of the process's default.
    ///
    /// # Errors
    /// A method has the name of another export, or another type was chosen for the interface.
    pub fn export_interface(&mut self, export: InterfaceExport) -> Result<(), DuplicateExport> {
        let known = self
            .interfaces
            .by_fingerprint
            .insert(fingerprint::of(export.interface()), Exported::By(export));
        let replaced = match known {
            Some(Exported::By(known)) => known.methods(),
            _ => &[],
        };
        for method in replaced {
            self.remove(method.name());
        }
        for method in export.methods() {
            self.add(method.into())?;
        }
        Ok(())
    }

    /// The interfaces that are exported.
    pub(crate) fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }
}

#[cfg(test)]
mod tests {
    use std::any::type_name;

    use super::*;
    use crate::ExportError;

    #[ifunc::interface]
    trait Once {
        fn once(&self) -> u8;
    }

    #[ifunc::interface]
    trait Twice {
        fn twice(&self) -> u8;
    }

    struct One;
    struct Other<T>(T);

    #[ifunc::export]
    impl Once for One {
        fn once(&self) -> u8 {
            1
        }
    }

    #[ifunc::export]
    impl Twice for One {
        fn twice(&self) -> u8 {
            1
        }
    }

    #[ifunc::export]
    impl Twice for Other<u8> {
        fn twice(&self) -> u8 {
            self.0
        }
    }

    impl Once for Other<u16> {
        fn once(&self) -> u8 {
            self.0 as u8
        }
    }

    fn key(name: &str) -> Fingerprint {
        fingerprint::of(&format!("interface {name}"))
    }

    #[test]
    fn the_only_type_of_a_process_is_the_default() {
        let symbols = HostSymbols::new().unwrap();
        let interfaces = symbols.interfaces();
        assert!(interfaces.has(key("Once"), TypeId::of::<One>()));
        assert!(!interfaces.has(key("Once"), TypeId::of::<Other<u16>>()));
        assert!(symbols.has("Once_once") && !symbols.has("Twice_twice"));
        assert_eq!(
            interfaces.of(TypeId::of::<One>()).collect::<Vec<_>>(),
            ["interface Once"]
        );
        assert_eq!(interfaces.explain(key("Never"), "T"), None);
        let why = interfaces.explain(key("Once"), "demo::Store").unwrap();
        assert!(
            why.contains("exports `Once` for `")
                && why.contains("export_interface::<dyn Once, demo::Store>()"),
            "{why}"
        );
    }

    #[test]
    fn among_several_types_the_target_chooses() {
        let mut symbols = HostSymbols::new().unwrap();
        let one = TypeId::of::<One>();
        assert!(!symbols.interfaces().has(key("Twice"), one));
        let why = symbols.interfaces().explain(key("Twice"), "T").unwrap();
        assert!(
            why.contains(type_name::<One>()) && why.contains(type_name::<Other<u8>>()),
            "{why}"
        );
        symbols
            .export_interface(InterfaceExport::of::<dyn Twice, One>())
            .unwrap();
        assert!(symbols.interfaces().has(key("Twice"), one) && symbols.has("Twice_twice"));
        let methods = symbols.interfaces();
        assert_eq!(methods.foreign_method(["memcpy", "Twice_twice"], one), None);
        let other = TypeId::of::<Other<u8>>();
        assert_eq!(
            methods.foreign_method(["memcpy", "Twice_twice"], other),
            Some("Twice_twice")
        );
        let why = methods.explain_foreign("Twice_twice", "demo::Store");
        assert!(
            why.contains("`Twice_twice`, a method of the interface `Twice`")
                && why.contains(type_name::<One>()),
            "{why}"
        );
        // The choice replaces a default, too, and the symbols with it.
        symbols
            .export_interface(InterfaceExport::of::<dyn Once, Other<u16>>())
            .unwrap();
        assert!(symbols.interfaces().has(key("Once"), TypeId::of::<Other<u16>>()));
        assert!(!symbols.interfaces().has(key("Once"), one) && symbols.has("Once_once"));
        assert_eq!(
            symbols.interfaces().foreign_method(["Once_once"], one),
            Some("Once_once")
        );
    }

    #[test]
    fn a_method_of_another_type_takes_no_place_at_run_time() {
        let (executor, _) = crate::tests::executor(1 << 16, 4);
        let exports = executor.exports();
        let methods = |export: InterfaceExport| -> Symbol { (&export.methods()[0]).into() };
        exports
            .replace(methods(InterfaceExport::of::<dyn Once, One>()))
            .unwrap();
        let other = methods(InterfaceExport::of::<dyn Once, Other<u16>>());
        let error = exports.replace(other.clone()).unwrap_err();
        assert!(matches!(
            error,
            ExportError::HostType {
                exported: Some(_),
                ..
            }
        ));
        let error = error.to_string();
        assert!(
            error.contains("Other<u16>`, and this target exports it for `"),
            "{error}"
        );
        exports.remove("Once_once").unwrap();
        assert!(matches!(exports.add(other), Err(ExportError::HostType { .. })));
        // Several types export it, and the builder chose none.
        let twice = methods(InterfaceExport::of::<dyn Twice, One>());
        let error = exports.add(twice).unwrap_err();
        assert!(
            matches!(error, ExportError::HostType { exported: None, .. }),
            "{error}"
        );
    }
}
