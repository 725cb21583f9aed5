//! Debug objects and libraries as a build writes them, and what is made of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use ::object::write::{Object, Relocation, Symbol, SymbolSection};
use ::object::{
    Architecture, BinaryFormat, Endianness, Object as _, ObjectSection as _, RelocationFlags, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope, elf,
};
use ifunc_abi::image::{ARCH_AARCH64, EntryPart, Image, ImageParts};
use ifunc_abi::symbols;

use super::backtrace::describe;
use super::object::Function;
use super::*;
use crate::arch::testing::code::put_call;
use crate::arch::{ABSOLUTE_64, ARCH, RETURN_ADDRESS, RETURNS_BY_REGISTER, STACK_POINTER};
use crate::page::page_size;

/// The functions of the images of these tests: offset, length and name.
const FUNCTIONS: [(u32, u32, &str); 3] = [(0, 16, "_ZN5ifunc4mainE"), (16, 16, "mul"), (32, 8, "core::fail")];

/// An image of the three functions, each of which but the last calls the next four bytes before its end, with statics in the page after it.
fn parts() -> ImageParts {
    let mut rx = vec![0x90; 40];
    for (back, to) in [(12, 16), (28, 32)] {
        put_call(&mut rx, back, to);
    }
    ImageParts {
        entries: vec![EntryPart::new("add")],
        arch: ARCH,
        rx,
        rw_at: 4096,
        rw: vec![1; 8],
        rw_mem: 24,
        ..ImageParts::default()
    }
}

fn elf_object() -> Object<'static> {
    let architecture = match ARCH {
        ARCH_AARCH64 => Architecture::Aarch64,
        _ => Architecture::X86_64,
    };
    Object::new(BinaryFormat::Elf, architecture, Endianness::Little)
}

/// A debug object whose one section of information states an address in the code, one in the data and a size.
fn debug_object(kind: elf::RelocationType) -> Vec<u8> {
    let mut object = elf_object();
    let mut section = |name: &str, kind| object.add_section(Vec::new(), name.into(), kind);
    let text = section(".text", SectionKind::UninitializedData);
    let data = section(".data", SectionKind::UninitializedData);
    let info = section(".debug_info", SectionKind::Debug);
    object.append_section_bss(text, 40, 16);
    object.append_section_bss(data, 24, 8);
    object.append_section_data(info, &[0xee; 32], 1);
    for (at, size, name) in FUNCTIONS {
        object.add_symbol(Symbol {
            name: name.into(),
            value: at.into(),
            size: size.into(),
            kind: SymbolKind::Text,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
    }
    for (offset, section, addend) in [(4, text, 16), (20, data, 8)] {
        let symbol = object.section_symbol(section);
        let relocation = Relocation {
            offset,
            symbol,
            addend,
            flags: RelocationFlags::Elf { r_type: kind },
        };
        object.add_relocation(info, relocation).unwrap();
    }
    object.write().unwrap()
}

/// A library of an image: two sections among others.
fn library(image: &[u8], debug: &[u8]) -> Vec<u8> {
    let mut object = elf_object();
    for (prefix, bytes) in [(symbols::DEBUG_SECTION, debug), (symbols::IMAGE_SECTION, image)] {
        let name = format!("{prefix}add").into_bytes();
        let section = object.add_section(Vec::new(), name, SectionKind::ReadOnlyData);
        object.append_section_data(section, bytes, 1);
    }
    object.write().unwrap()
}

/// A folder of a test's own, with a library of the image.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("ifunc-debug-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let image = parts().encode().unwrap();
        let library = library(&image, &debug_object(ABSOLUTE_64));
        std::fs::write(folder.join("add.so"), library).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Calls with the image, installed at 0x10000.
fn placed_image<R>(with: impl FnOnce(&Placement<'_>) -> R) -> R {
    let bytes = parts().encode().unwrap();
    let image = Image::parse(&bytes).unwrap();
    with(&Placement {
        id: blake3::hash(&bytes).as_bytes(),
        image: &image,
        base: 0x1_0000,
        code: image.rx(),
    })
}

#[test]
fn the_debug_object_of_an_image_lies_in_its_library() {
    let folder = Folder::new("library");
    let (id, other) = (placed_image(|placement| *placement.id), [7; 32]);
    let path = folder.0.join("add.so");
    let object = DebugObject::read(&path, "add", &id).unwrap();
    assert_eq!(object.bytes(), debug_object(ABSOLUTE_64));
    let functions = FUNCTIONS.map(|(at, size, name)| Function::new(at, size, name));
    assert!(object.functions().iter().eq(&functions));
    assert!(
        DebugObject::read(&path, "add", &other).is_none(),
        "an earlier build"
    );
    assert!(DebugObject::read(&path, "mul", &id).is_none());
    assert!(DebugObject::read(&folder.0, "add", &id).is_none());
    let folders = [PathBuf::from("/nowhere"), folder.0.clone()];
    assert!(DebugObject::find(&folders, "add", &id).is_some());
    assert!(DebugObject::find(&folders[..1], "add", &id).is_none());
    // No name of a file leads out of the folders.
    let inner = folder.0.join("inner");
    std::fs::create_dir(&inner).unwrap();
    assert!(DebugObject::find(&[inner], "../add", &id).is_none());
}

#[test]
fn an_offset_belongs_to_the_function_that_holds_it() {
    let functions = Functions::new(vec![Function::new(16, 8, "f"), Function::new(32, 0, "g")]);
    let name = |offset| functions.at(offset).map(|function| &*function.name);
    let found = [15, 16, 23, 24, 32, 33].map(name);
    assert_eq!(found, [None, Some("f"), Some("f"), None, Some("g"), None]);
}

#[test]
fn sections_of_a_debug_object_get_the_addresses_of_the_image() {
    let folder = Folder::new("placed");
    placed_image(|placement| {
        let object = DebugObject::read(&folder.0.join("add.so"), "add", placement.id).unwrap();
        let bytes = symfile::placed(&object, placement).unwrap();
        let file = ::object::File::parse(&*bytes).unwrap();
        let section = |name| file.section_by_name(name).unwrap();
        let addresses = [".text", ".data", ".debug_info"].map(|name| section(name).address());
        assert_eq!(addresses, [0x1_0000, 0x1_1000, 0]);
        let info = section(".debug_info");
        let word = |at: usize| u64::from_le_bytes(info.data().unwrap()[at..at + 8].try_into().unwrap());
        assert_eq!([word(4), word(20)], [0x1_0010, 0x1_1008]);
        assert_eq!(info.data().unwrap()[..4], [0xee; 4]);
        // gdb would relocate it once more.
        assert_eq!(info.relocations().count(), 0);
        let registry = DebugRegistry {
            info: DebugInfo::none(),
            folders: Vec::new,
        };
        assert!(registry.register(placement).object.is_none());
    });
}

#[test]
fn a_debug_object_with_other_relocations_is_not_used() {
    placed_image(|placement| {
        let bytes = library(
            &parts().encode().unwrap(),
            &debug_object(elf::RelocationType(ABSOLUTE_64.0 + 1)),
        );
        let folder = Folder::new("other");
        let path = folder.0.join("add.so");
        std::fs::write(&path, bytes).unwrap();
        let object = DebugObject::read(&path, "add", placement.id).unwrap();
        assert!(symfile::placed(&object, placement).is_none());
    });
}

#[test]
fn the_frames_of_an_image_end_at_the_stack_that_it_runs_on() {
    use crate::stack::Listing;
    // One that lies on no stack of another test, nor does its neighbour.
    let (low, frame) = (0x10, 0x7f0);
    let lists = [Listing::new(0x1000..0x1800), Listing::new(low..frame)];
    let code = symfile::frame_address();
    let pushed = if RETURNS_BY_REGISTER { 0 } else { 8 };
    let lock = crate::stack::lock();
    for (stack_pointer, expected) in [
        (low, frame),
        (frame - 1, frame),
        (0x1000, 0x1800),
        (0x17f8, 0x1800),
        // On none.
        (frame, frame + pushed),
        (low - 1, low - 1 + pushed),
        (0x1800, 0x1800 + pushed),
    ] {
        assert_eq!(evaluate(&code, stack_pointer), expected, "{stack_pointer:#x}");
    }
    drop(lock);
    drop(lists);
}

#[test]
fn a_return_address_in_a_register_is_found_where_the_shim_keeps_it() {
    use crate::stack::Listing;
    if !RETURNS_BY_REGISTER {
        return;
    }
    // The shim pushes the host's stack pointer and the return address.
    let stack = [0_usize, 0, 7, 0x1234];
    let low = stack.as_ptr().expose_provenance();
    let frame = low + 2 * size_of::<usize>();
    let _listing = Listing::new(low..frame);
    let code = symfile::saved_return_address();
    let _lock = crate::stack::lock();
    assert_eq!(evaluate(&code, low), 0x1234);
    assert_eq!(evaluate(&code, frame - 1), 0x1234);
    assert_eq!(evaluate(&code, frame), LINK);
}

/// What the register with the return address holds.
const LINK: usize = 0x5678;

/// What a debugger does with an expression of DWARF, as far as ours go.
fn evaluate(code: &[u8], stack_pointer: usize) -> usize {
    let (mut at, mut stack) = (0, Vec::<usize>::new());
    let distance = |at: usize| isize::from(i16::from_le_bytes([code[at], code[at + 1]]));
    while at < code.len() {
        let operation = code[at];
        at += 1;
        match operation {
            0x0e => {
                stack.push(usize::from_le_bytes(code[at..at + 8].try_into().unwrap()));
                at += 8;
            }
            0x06 => {
                let address = std::ptr::with_exposed_provenance::<usize>(stack.pop().unwrap());
                // SAFETY: the expression reads the list of stacks, whose entries live while its lock is held.
                stack.push(unsafe { address.read_volatile() });
            }
            0x12 => stack.extend_from_within(stack.len() - 1..),
            0x13 => drop(stack.pop()),
            0x15 => {
                stack.push(stack[stack.len() - 1 - usize::from(code[at])]);
                at += 1;
            }
            0x1a | 0x2a | 0x2d => {
                let (b, a) = (stack.pop().unwrap() as i64, stack.pop().unwrap() as i64);
                stack.push(match operation {
                    0x1a => (a & b) as usize,
                    0x2a => usize::from(a >= b),
                    _ => usize::from(a < b),
                });
            }
            0x23 => {
                *stack.last_mut().unwrap() += usize::from(code[at]);
                at += 1;
            }
            0x28 | 0x2f => {
                let is_taken = operation == 0x2f || stack.pop() != Some(0);
                let distance = if is_taken { distance(at) } else { 0 };
                at = (at + 2).checked_add_signed(distance).unwrap();
            }
            register if register == 0x70 + STACK_POINTER => {
                stack.push(stack_pointer + usize::from(code[at]));
                at += 1;
            }
            register if register == 0x70 + RETURN_ADDRESS => {
                stack.push(LINK + usize::from(code[at]));
                at += 1;
            }
            other => panic!("operation {other:#x}"),
        }
        assert!(stack.len() < 8);
    }
    assert_eq!(at, code.len());
    stack.pop().unwrap()
}

#[test]
fn the_choice_of_the_environment_replaces_that_of_the_program() {
    let program = DebugInfo::names();
    let (lines, perf) = (DebugInfo::none().lines(), DebugInfo::none().perf());
    assert!(lines.names && lines.lines && !lines.perf);
    assert!(perf.perf && !perf.names && !perf.lines);
    for (words, chosen) in [
        (None, program),
        (Some(""), DebugInfo::none()),
        (Some("none"), DebugInfo::none()),
        (Some("gdb"), lines),
        (Some("perf"), perf),
        (Some("perf , gdb"), lines.perf()),
        (Some("lldb"), DebugInfo::none()),
    ] {
        assert_eq!(program.or(words.map(Into::into)), chosen, "{words:?}");
    }
}

#[test]
fn a_fault_is_described_by_the_function_that_it_happened_in() {
    let code: &'static [u8] = parts().rx.leak();
    let mut record = DebugRecord {
        code: code.as_ptr().addr()..code.as_ptr().expose_provenance() + code.len(),
        object: None,
        _registration: None,
    };
    // In the third function, called by the second, called by the first. The first word is the place of the fault plus 1.
    let calls = [35, 28, 12];
    assert_eq!(
        record.describe_fault("add", &calls, true),
        "add+[0x22 < 0x1c < 0xc]"
    );
    assert_eq!(
        record.describe_fault("add", &calls, false),
        "add+[0x23 < 0x1c < 0xc]"
    );
    let folder = Folder::new("described");
    record.object =
        placed_image(|placement| DebugObject::find(std::slice::from_ref(&folder.0), "add", placement.id));
    // What is of the language is skipped.
    assert_eq!(record.describe_fault("add", &calls, true), "mul+0xc");
    assert_eq!(record.describe("add", &calls[1..]), "mul+0xc");
    // A call that never returns is the last of its function: the address after it is of another one, or of none.
    assert_eq!(record.describe("add", &[40, 28]), "mul+0xc");
    assert_eq!(describe("add", code, &[28], None), "add+[0x1c]");
}

/// Runs a test again, in a process of its own with these variables.
fn again(test: &str, variables: &[(&str, &Path)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let name = format!("debug::tests::{test}");
    let output = child
        .args(["--exact", &name])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// In a process of its own: there is one dump of each.
#[test]
fn perf_learns_of_what_is_installed_from_then_on() {
    const NAME: &str = "perf_learns_of_what_is_installed_from_then_on";
    const FOLDER: &str = "JITDUMPDIR";
    if std::env::var_os(VARIABLE).is_none() {
        let folder = Folder::new("perf");
        return again(NAME, &[(VARIABLE, Path::new("perf")), (FOLDER, &folder.0)]);
    }
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let before = perf::now();
    let registry = DebugRegistry::new(DebugInfo::none(), Vec::new);
    let dump = folder.join(format!("jit-{}.dump", std::process::id()));
    // By this `perf record` learns of the dump, and copies nothing that could run.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = dump.to_str().unwrap();
    let map = maps.lines().find(|line| line.ends_with(path)).unwrap();
    assert_eq!(map.split(' ').nth(1), Some("r-xp"), "{map}");
    placed_image(|placement| {
        drop(registry.register(placement));
        let object = DebugObject::find(std::slice::from_ref(&folder), "add", placement.id);
        perf::loaded(placement, object.as_ref());
    });
    let bytes = std::fs::read(&dump).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (mut at, mut seen) = (page_size(), Vec::new());
    while at < bytes.len() {
        assert!((before..=perf::now()).contains(&word(at + 8)));
        let name: Vec<u8> = bytes[at + 56..]
            .iter()
            .copied()
            .take_while(|byte| *byte != 0)
            .collect();
        seen.push((String::from_utf8(name).unwrap(), word(at + 32), word(at + 40)));
        at += (word(at) >> 32) as usize;
    }
    let mut expected = vec![("add_main".to_owned(), 0x1_0000, 40)];
    let functions =
        FUNCTIONS.map(|(at, size, name)| (name.to_owned(), 0x1_0000 + u64::from(at), size.into()));
    expected.extend(functions);
    assert_eq!(seen, expected);
}

#[test]
fn perf_has_the_clock_of_its_own_option() {
    let clock = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos()
    };
    let (before, now, after) = (clock(), perf::now(), clock());
    assert!((before..=after).contains(&now.into()), "{before} {now} {after}");
}
