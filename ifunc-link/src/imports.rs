//! Symbols that no input defines: each is an import or a reason against the image.

use ifunc_abi::{name, symbols};
use object::elf;

use crate::arch::{Bytes, Refused};
use crate::gc::Collector;
use crate::graph::{Import, Target};
use crate::inputs::Role;
use crate::object_file::{SectionKind, Symbol};
use crate::reason::Rule;
use crate::refuse::Site;
use crate::{Imports, help};

/// Whether only landing pads call the symbol. Landing pads never run: an image does not unwind.
fn is_landing_pad(symbol: &str) -> bool {
    matches!(
        symbol,
        "_Unwind_Resume"
            | "rust_eh_personality"
            | "__gxx_personality_v0"
            | "__gcc_personality_v0"
            | "__cxa_begin_catch"
            | "__cxa_end_catch"
            | "__cxa_get_exception_ptr"
            | "__cxa_rethrow"
            | "__cxa_call_unexpected"
    )
}

/// What guarded stack frames refer to. Some builds of Rust's own libraries have such frames.
const GUARD: [&str; 2] = [symbols::STACK_GUARD, "__stack_chk_fail"];

/// Functions that start unwinding.
const THROWS: [&str; 5] = [
    "__cxa_allocate_exception",
    "__cxa_throw",
    "_Unwind_RaiseException",
    "_Unwind_ForcedUnwind",
    "_Unwind_Resume_or_Rethrow",
];

/// Whether it is a function for atomic operations that compilers for AArch64 call, such as `__aarch64_ldadd8_acq_rel`: hidden, in the
/// compiler's library.
fn is_outline_atomic(symbol: &str) -> bool {
    let operations = ["cas", "swp", "ldadd", "ldclr", "ldeor", "ldset"];
    symbol.strip_prefix("__aarch64_").is_some_and(|rest| {
        operations.iter().any(|operation| {
            let size = rest.strip_prefix(operation).unwrap_or_default();
            size.starts_with(|first: char| first.is_ascii_digit())
        })
    })
}

/// Whether the relocation is the destination of a call or a jump.
fn is_branch(site: &Site<'_, '_>) -> bool {
    let section = &site.object.sections[site.section];
    let at = Bytes {
        bytes: section.data,
        offset: site.relocation.offset as usize,
        text: section.kind == SectionKind::Text,
    };
    let classified = site
        .object
        .arch
        .classify(site.relocation.kind, at, site.relocation.addend);
    classified
        .ok()
        .flatten()
        .is_some_and(|classified| classified.is_branch)
}

impl<'w, 'a> Collector<'w, 'a> {
    /// Makes an import of an undefined symbol, or refuses it.
    pub(crate) fn import(&mut self, site: &Site<'w, 'a>, symbol: &Symbol<'a>) -> Option<Target> {
        match symbol.name {
            "_GLOBAL_OFFSET_TABLE_" => {
                let help = site.object.arch.help(Refused::GotRelative(""));
                self.report(site, Rule::GotRelative, symbol.name, "", help);
                return None;
            }
            // The calls are in landing pads, which never run: a panic ends the invocation.
            name if is_landing_pad(name) => {
                return Some(Target::Section(self.trap(site.object.arch)));
            }
            // The second half of a pair whose first half was refused already.
            "__tls_get_addr" if self.reasons.has(Rule::ThreadLocal) => return None,
            name if THROWS.contains(&name) => {
                self.report(site, Rule::Unwinding, name, "", help::UNWINDING);
                return None;
            }
            name if is_outline_atomic(name) => {
                self.report(site, Rule::Hidden, name, "", help::OUTLINE_ATOMICS);
                return None;
            }
            name if self.refuse_linker_symbol(site, name) => return None,
            name if symbol.hidden => {
                self.report(site, Rule::Hidden, name, "", help::HIDDEN);
                return None;
            }
            name if name.contains('@') => {
                self.report(site, Rule::SymbolVersion, name, "", help::SYMBOL_VERSION);
                return None;
            }
            name if !name::is_valid_symbol(name) => {
                self.report(site, Rule::SymbolName, name, "", help::SYMBOL_NAME);
                return None;
            }
            name => {
                // C declares to its compiler alone.
                let is_of_c = matches!(self.inputs.role(site.object_index), Role::Helper | Role::Support);
                if !is_of_c
                    && let Imports::Declared(declared) = &self.request.imports
                    && !declared.contains_key(name)
                    && !symbols::RUNTIME_IMPORTS.contains(&name)
                    && name != symbols::REPLACE_EXPORT
                    && !GUARD.contains(&name)
                {
                    let help = match self.inputs.cxx_helper(name) {
                        Some((object, function)) => help::cxx_helper(object, &function),
                        None => help::undeclared(name, is_branch(site)),
                    };
                    self.report(site, Rule::Undeclared, name, "", &help);
                    return None;
                }
            }
        }
        let number = *self.import_numbers.entry(symbol.name).or_insert_with(|| {
            self.imports.push(Import {
                symbol: symbol.name,
                weak: true,
                is_variable: false,
                is_function: false,
            });
            self.imports.len() - 1
        });
        let import = &mut self.imports[number];
        import.weak &= symbol.weak;
        // Compilers write no type for an undefined symbol. A variable is known by its declaration alone.
        import.is_variable |= symbol.kind == elf::STT_OBJECT;
        import.is_function |= symbol.kind == elf::STT_FUNC || is_branch(site);
        Some(Target::Import(number))
    }
}
