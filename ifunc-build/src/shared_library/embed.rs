//! The object that carries an image into its library.

use ifunc_abi::image::ARCH_AARCH64;
use ifunc_abi::symbols::{ABOUT_SECTION, DEBUG_SECTION, IMAGE_SECTION};
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
    elf,
};

/// Section that records what a library was made from: this prefix and the ifunc's name. Lines `key HEX` and `origin
/// TEXT`.
pub(crate) const BUILD_SECTION: &str = ".ifunc.build.";

/// Symbols at the starts of the sections: a reference to them keeps the sections in the link.
pub(crate) fn anchors(name: &str) -> [String; 4] {
    ["image", "about", "debug", "build"].map(|part| format!("__ifunc_{part}_of_{name}"))
}

/// The contents of an ifunc's sections.
pub(crate) struct Parts<'p> {
    /// The table of the images.
    pub(crate) images: &'p [u8],
    pub(crate) about: &'p str,
    /// The table of their debug objects.
    pub(crate) debug: &'p [u8],
    pub(crate) build: &'p str,
    /// A symbol under which code of the library finds the ifunc's name, as a C string.
    pub(crate) name_symbol: Option<&'p str>,
}

/// An object with the sections of one ifunc. They are in no segment: readers take them from the file, and a process
/// that opens the library does not map them.
pub(crate) fn embed(arch: u16, name: &str, parts: &Parts<'_>) -> Result<Vec<u8>, object::write::Error> {
    let Parts {
        images,
        about,
        debug,
        build,
        name_symbol,
    } = *parts;
    let architecture = if arch == ARCH_AARCH64 {
        Architecture::Aarch64
    } else {
        Architecture::X86_64
    };
    let mut object = Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
    let sections: [(&str, &[u8]); 4] = [
        (IMAGE_SECTION, images),
        (ABOUT_SECTION, about.as_bytes()),
        (DEBUG_SECTION, debug),
        (BUILD_SECTION, build.as_bytes()),
    ];
    for ((prefix, data), anchor) in sections.into_iter().zip(anchors(name)) {
        let section = object.add_section(
            Vec::new(),
            format!("{prefix}{name}").into_bytes(),
            SectionKind::Other,
        );
        *object.section_flags_mut(section) = SectionFlags::Elf {
            sh_type: elf::SHT_PROGBITS,
            sh_flags: elf::SectionFlags(0),
        };
        object.append_section_data(section, data, 1);
        object.add_symbol(Symbol {
            name: anchor.into_bytes(),
            value: 0,
            size: data.len() as u64,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
    if let Some(symbol) = name_symbol {
        let section = object.add_section(Vec::new(), b".rodata".to_vec(), SectionKind::ReadOnlyData);
        let text = [name.as_bytes(), &[0]].concat();
        let value = object.append_section_data(section, &text, 1);
        object.add_symbol(Symbol {
            name: symbol.into(),
            value,
            size: text.len() as u64,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        });
    }
    // Without this section, linkers assume that the object needs an executable stack.
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    object.write()
}
