//! What `inspect` prints of images with several entries. The machine code is written out here, so that no compiler changes it.

use ifunc_abi::image::{EntryFlags, Image};
use ifunc_build::LibraryImage;
use ifunc_link::{Ifunc, Imports, Input, Linker, Request, Role};
use object::write::{Object, Relocation, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

use super::disasm;
use super::report::Report;
use super::size::Size;
use super::table;

/// An object, function by function.
struct Code(Object<'static>);

impl Code {
    fn of(architecture: Architecture) -> Self {
        Self(Object::new(BinaryFormat::Elf, architecture, Endianness::Little))
    }

    fn symbol(&mut self, name: &str, size: u64, section: SymbolSection, kind: SymbolKind) -> SymbolId {
        self.0.add_symbol(Symbol {
            name: name.into(),
            value: 0,
            size,
            kind,
            scope: SymbolScope::Dynamic,
            weak: false,
            section,
            flags: SymbolFlags::None,
        })
    }

    fn import(&mut self, name: &str) -> SymbolId {
        self.symbol(name, 0, SymbolSection::Undefined, SymbolKind::Unknown)
    }

    /// A function in a section of its own; `references`: offset, symbol and kind. On x86-64 each is the end of its instruction.
    fn function(
        &mut self,
        name: &str,
        code: &[u8],
        references: &[(u64, SymbolId, elf::RelocationType)],
    ) -> SymbolId {
        let section = format!(".text.{name}").into_bytes();
        let section = self.0.add_section(Vec::new(), section, SectionKind::Text);
        self.0.append_section_data(section, code, 16);
        for (offset, symbol, r_type) in references {
            let relocation = Relocation {
                offset: *offset,
                symbol: *symbol,
                addend: match self.0.architecture() {
                    Architecture::X86_64 => -4,
                    _ => 0,
                },
                flags: RelocationFlags::Elf { r_type: *r_type },
            };
            self.0.add_relocation(section, relocation).expect("a relocation");
        }
        self.symbol(
            name,
            code.len() as u64,
            SymbolSection::Section(section),
            SymbolKind::Text,
        )
    }

    /// The same in words of AArch64.
    fn words(
        &mut self,
        name: &str,
        code: &[u32],
        references: &[(u64, SymbolId, elf::RelocationType)],
    ) -> SymbolId {
        let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.function(name, &bytes, references)
    }

    fn data(&mut self, name: &str, bytes: &[u8]) -> SymbolId {
        let section = format!(".data.{name}").into_bytes();
        let section = self.0.add_section(Vec::new(), section, SectionKind::Data);
        self.0.append_section_data(section, bytes, 8);
        let kind = SymbolKind::Data;
        self.symbol(name, bytes.len() as u64, SymbolSection::Section(section), kind)
    }
}

/// `call rel32 ; ret`
const CALLS: [u8; 6] = [0xe8, 0, 0, 0, 0, 0xc3];
/// `lea rax, [rip+rel32] ; call rel32 ; ret`
const REFERS_AND_CALLS: [u8; 13] = [0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3];

/// Two entries that name each other and share a function, a variable and an import. The linker makes one image of them.
fn linked(root: Ifunc<'_>, other: Ifunc<'_>, imports: Imports<'_>) -> LibraryImage {
    use elf::{R_X86_64_PC32, R_X86_64_PLT32, R_X86_64_REX_GOTPCRELX};
    let mut code = Code::of(Architecture::X86_64);
    let counter = code.data("counter", &7u64.to_le_bytes());
    let [log, level, hook] = ["log", "level", "hook"].map(|name| code.import(name));
    // mov rax, [rip+level] ; mov rcx, [rip+hook] ; inc qword [rip+counter] ; jmp log
    let shared = [
        0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x8b, 0x0d, 0, 0, 0, 0, 0x48, 0xff, 0x05, 0, 0, 0, 0, 0xe9, 0, 0,
        0, 0,
    ];
    let shared = code.function(
        "shared",
        &shared,
        &[
            (3, level, R_X86_64_REX_GOTPCRELX),
            (10, hook, R_X86_64_REX_GOTPCRELX),
            (17, counter, R_X86_64_PC32),
            (22, log, R_X86_64_PLT32),
        ],
    );
    let main = |ifunc: &Ifunc<'_>| format!("{}_main", ifunc.name);
    let other_main = code.function(&main(&other), &CALLS, &[(1, shared, R_X86_64_PLT32)]);
    let references = [(3, other_main, R_X86_64_PC32), (8, shared, R_X86_64_PLT32)];
    code.function(&main(&root), &REFERS_AND_CALLS, &references);
    let request = Request {
        others: vec![other],
        variables: ["level"].into(),
        needed: vec!["libz.so.1"],
        ..Request::of(root, imports)
    };
    image_of(&code, &request)
}

fn rust() -> LibraryImage {
    let typed = |name, payload, flags| Ifunc {
        flags,
        payload,
        target: 2,
        answer: 3,
        payload_align: 8,
        ..Ifunc::new(name)
    };
    let imports = [("log", 0x10), ("level", 0x11), ("hook", 0x12)];
    let about = "entry visit\npayload u64\ntarget interface Kv\nanswer ()\nconvention bound\n\
        entry walk\npayload struct Step{0:at:u64}[8,8]\ntarget interface Kv\nanswer u64\nconvention bound\n\
        import log fn log(u64)\nimport level static level:atomic u32\nimport hook fn hook(&[u8])->u32\n";
    LibraryImage {
        about: about.into(),
        ..linked(
            typed("walk", 1, EntryFlags::SHARED.union(EntryFlags::IDEMPOTENT)),
            typed("visit", 4, EntryFlags::SHARED),
            Imports::Declared(imports.into()),
        )
    }
}

fn c() -> LibraryImage {
    let ifunc = |name, flags| Ifunc {
        flags,
        payload_align: 16,
        ..Ifunc::new(name)
    };
    LibraryImage {
        about: "entry leaf\nconvention max-size\nentry root\nconvention bound\n".into(),
        ..linked(
            ifunc("root", EntryFlags::NONE),
            ifunc("leaf", EntryFlags::IGNORE_RESULT),
            Imports::Any,
        )
    }
}

/// Code of AArch64 that calls a function of its own, which reads an import, counts in a variable and ends in an import.
fn aarch64() -> LibraryImage {
    let mut code = Code::of(Architecture::Aarch64);
    let counter = code.data("counter", &7u64.to_le_bytes());
    let [log, level] = ["log", "level"].map(|name| code.import(name));
    let shared = code.words(
        "shared",
        &[
            0x9000_0000, // adrp x0, :got:level
            0xf940_0000, // ldr x0, [x0, :got_lo12:level]
            0xb940_0001, // ldr w1, [x0]
            0x3400_00a1, // cbz w1, +20
            0x9000_0002, // adrp x2, counter
            0xf940_0043, // ldr x3, [x2, :lo12:counter]
            0x9100_0463, // add x3, x3, #1
            0xf900_0043, // str x3, [x2, :lo12:counter]
            0x1400_0000, // b log
        ],
        &[
            (0, level, elf::R_AARCH64_ADR_GOT_PAGE),
            (4, level, elf::R_AARCH64_LD64_GOT_LO12_NC),
            (16, counter, elf::R_AARCH64_ADR_PREL_PG_HI21),
            (20, counter, elf::R_AARCH64_LDST64_ABS_LO12_NC),
            (28, counter, elf::R_AARCH64_LDST64_ABS_LO12_NC),
            (32, log, elf::R_AARCH64_JUMP26),
        ],
    );
    code.words(
        "root_main",
        &[
            0xa9bf_7bfd, // stp x29, x30, [sp, #-16]!
            0x9400_0000, // bl shared
            0x9000_0000, // adrp x0, counter
            0x9100_0000, // add x0, x0, :lo12:counter
            0x4e80_9420, // sdot v0.4s, v1.16b, v0.16b
            0x2598_e3e0, // ptrue p0.s, of SVE
            0xa8c1_7bfd, // ldp x29, x30, [sp], #16
            0xd65f_03c0, // ret
        ],
        &[
            (4, shared, elf::R_AARCH64_CALL26),
            (8, counter, elf::R_AARCH64_ADR_PREL_PG_HI21),
            (12, counter, elf::R_AARCH64_ADD_ABS_LO12_NC),
        ],
    );
    image_of(&code, &Request::of(Ifunc::new("root"), Imports::Any))
}

fn image_of(code: &Code, request: &Request<'_>) -> LibraryImage {
    let object = code.0.write().expect("an object");
    let linker = Linker::open(&[Input {
        name: "both.o",
        data: &object,
        role: Role::User,
    }])
    .expect("an input");
    let linked = linker.link_explained(request).expect("an image");
    LibraryImage {
        name: request.root.name.into(),
        image: linked.image,
        about: String::new(),
        debug: linked.debug,
    }
}

/// The text as a file has it, without colours.
fn printed(print: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    print(&mut out).expect("memory");
    String::from_utf8(out.into_inner()).expect("UTF-8")
}

#[test]
fn images_with_several_entries() {
    for (language, library) in [("rust", rust()), ("c", c())] {
        let image = Image::parse(&library.image).expect("an image");
        let report = Report::new(&library, &image);
        insta::assert_snapshot!(
            format!("{language}_table"),
            printed(|out| table::print(&report, out))
        );
        let json = serde_json::to_string_pretty(&report).expect("JSON");
        insta::assert_snapshot!(format!("{language}_json"), json);
    }
}

#[test]
fn code_of_aarch64_has_names() {
    let library = aarch64();
    let image = Image::parse(&library.image).expect("an image");
    for (name, debug) in [("aarch64", &library.debug[..]), ("aarch64_stripped", &[])] {
        let mut out = anstream::StripStream::new(Vec::new());
        disasm::print(&image, &library.name, debug, debug.is_empty(), &mut out).expect("AArch64");
        let text = String::from_utf8(out.into_inner()).expect("UTF-8");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn what_entries_share_counts_once() {
    let library = rust();
    let image = Image::parse(&library.image).expect("an image");
    assert_eq!(image.entries().len(), 2);
    let size = Size::new(&library.name, &image, library.image.len(), &library.debug);
    insta::assert_snapshot!("size_table", printed(|out| size.print(out)));
    let json = serde_json::to_value(&size).expect("JSON");
    insta::assert_snapshot!("size_json", serde_json::to_string_pretty(&size).expect("JSON"));
    let items = json["items"].as_array().expect("items");
    let bytes = items.iter().filter_map(|item| item["bytes"].as_u64());
    assert_eq!(bytes.sum::<u64>(), library.image.len() as u64);
    for once in ["shared", "walk_main", "visit_main", "counter"] {
        let found = items.iter().filter(|item| item["name"] == once).count();
        assert_eq!(found, 1, "{once}");
    }
}
