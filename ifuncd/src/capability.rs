//! What a source may use of the node.

use std::fmt;

/// One of the interfaces of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Keys and values.
    Store,
    /// Files below the folder.
    Files,
    /// Named regions.
    Memory,
    /// Clocks.
    Time,
    /// Random numbers.
    Random,
    /// The log.
    Log,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Store,
        Self::Files,
        Self::Memory,
        Self::Time,
        Self::Random,
        Self::Log,
    ];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Files => "files",
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Random => "random",
            Self::Log => "log",
        }
    }

    /// The capability of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// The capability that a function needs which an image imports: a method of an interface, or one of the runtime's own functions.
    /// `None`: every source may use it.
    #[must_use]
    pub fn of_import(symbol: &str) -> Option<Self> {
        let by_prefix = [
            ("ifuncd_store_", Self::Store),
            ("ifuncd_files_", Self::Files),
            ("ifuncd_memory_", Self::Memory),
            ("ifuncd_clock_", Self::Time),
            ("ifuncd_random_", Self::Random),
            ("ifuncd_log_", Self::Log),
        ];
        let of_interface = by_prefix
            .into_iter()
            .find(|(prefix, _)| symbol.starts_with(prefix));
        match symbol {
            "__ifunc_unix_time" => Some(Self::Time),
            "__ifunc_random" => Some(Self::Random),
            _ => of_interface.map(|(_, capability)| capability),
        }
    }

    /// Whether the import is one of the runtime's own: nothing is asked when it is called.
    #[must_use]
    pub fn is_of_runtime(symbol: &str) -> bool {
        symbol.starts_with("__ifunc_")
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Some capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u8);

impl Capabilities {
    /// Adds one.
    pub fn add(&mut self, capability: Capability) {
        self.0 |= 1 << capability as u8;
    }

    /// Whether this one is among them.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u8 != 0
    }

    /// Those that are among them.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        Capability::ALL.into_iter().filter(move |one| self.has(*one))
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(all: I) -> Self {
        let mut some = Self::default();
        all.into_iter().for_each(|one| some.add(one));
        some
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|one| format!("`{one}`")).collect();
        match names.is_empty() {
            true => f.write_str("nothing"),
            false => f.write_str(&names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_capability() {
        for one in Capability::ALL {
            assert_eq!(Capability::by_name(one.name()), Some(one));
        }
        assert_eq!(Capability::by_name("disk"), None);
        let some: Capabilities = [Capability::Log, Capability::Store].into_iter().collect();
        assert!(some.has(Capability::Store) && !some.has(Capability::Files));
        assert_eq!(some.to_string(), "`store`, `log`");
        assert_eq!(Capabilities::default().to_string(), "nothing");
    }

    #[test]
    fn imports_need_the_capability_of_their_interface() {
        assert_eq!(Capability::of_import("ifuncd_store_put"), Some(Capability::Store));
        assert_eq!(
            Capability::of_import("ifuncd_clock_unix_time"),
            Some(Capability::Time)
        );
        assert_eq!(Capability::of_import("__ifunc_random"), Some(Capability::Random));
        assert_eq!(Capability::of_import("__ifunc_alloc"), None);
        assert_eq!(Capability::of_import("store_put"), None);
    }
}
