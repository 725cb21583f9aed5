//! The help lines of refusals.

pub(crate) const NO_ENTRY: &str = "define a function of this name: `void X_main(void *payload, size_t payload_size, void *target_args)` in C, `#[ifunc] fn X` in Rust";
pub(crate) const THREAD_LOCAL: &str = "an image has no thread-local storage: use a `static`, keep the value in the target arguments, or reach it through an import";
pub(crate) const CONSTRUCTOR: &str =
    "an image runs no constructors: initialise the data with a constant, or on the first call of the ifunc";
pub(crate) const CPU_SUPPORTS: &str = "`__builtin_cpu_supports` and `__builtin_cpu_is` read what a constructor of the compiler's library fills in, and an image runs no constructors: call `__builtin_cpu_init()` first";
pub(crate) const SUPPORT_CONSTRUCTOR: &str = "the compiler's library initialises this when a program starts, which an image never does: remove its use";
pub(crate) const NESTED_FUNCTION: &str = "GCC writes code on the stack for a nested function whose address is used, and no stack of a target is executable: make it a `static` function of the file, and pass what it used of the function around it as an argument";
pub(crate) const EXECUTABLE_STACK: &str = "no stack of a target is executable: assemble with `.section .note.GNU-stack,\"\",@progbits`, if the code writes none there";
pub(crate) const GNU_IFUNC: &str = "this is GNU C's load-time dispatch, another thing than an injected function: call one implementation directly, or choose it in the function (`__builtin_cpu_init()` first, then `__builtin_cpu_supports`)";
pub(crate) const PIC: &str = "compile with `-fPIC`, without `-fno-pic`, `-fno-pie` and `-mcmodel=kernel`";
pub(crate) const DIRECT_EXTERNAL: &str = "compile with `-fPIC` (not `-fPIE`), and do not declare what the target provides with hidden visibility or as `static`";
pub(crate) const GOT_RELATIVE: &str =
    "compile without `-mcmodel=medium` and `-mcmodel=large`, and with `-fPIC`";
pub(crate) const UNSUPPORTED: &str = "compile with `-fPIC` and without unusual code-model options; hand-written assembler must use `sym(%rip)`, `sym@PLT` or `sym@GOTPCREL(%rip)`";
pub(crate) const PIC_AARCH64: &str =
    "compile with `-fPIC`, without `-fno-pic`, `-fno-pie` and `-mcmodel=large`";
pub(crate) const GOT_RELATIVE_AARCH64: &str =
    "compile with `-fPIC`: `-fpic` counts from the GOT of a linked file, which an image does not have";
pub(crate) const UNSUPPORTED_AARCH64: &str = "compile with `-fPIC` and without unusual code-model options; hand-written assembler must use `bl sym`, `adrp` with `:lo12:sym`, or `:got:sym` with `:got_lo12:sym`";
pub(crate) const OUTLINE_ATOMICS: &str = "compile with `-mno-outline-atomics`, and Rust with `-Ctarget-feature=-outline-atomics`, or link the compiler's library (`-print-libgcc-file-name`): no target has the functions that choose between two kinds of atomic instructions";
pub(crate) const SYMBOL_NAME: &str =
    "imports have names of printable ASCII without blanks, at most 1024 bytes";
pub(crate) const SYMBOL_VERSION: &str =
    "a target exports names without versions: refer to the symbol without `.symver`";
pub(crate) const ABSOLUTE: &str =
    "use a constant (`enum`, `#define`, `const`) instead of an assembler symbol";
pub(crate) const SECTION: &str =
    "put code into a section that is not writable, and data into one that is loaded and not executable";
pub(crate) const HIDDEN: &str = "declare functions and data of the target with default visibility (`__attribute__((visibility(\"default\")))`, no `#pragma GCC visibility`); a hidden symbol must be defined in an object of the image";
pub(crate) const UNWINDING: &str = "nothing unwinds through an image, so nothing can be thrown in it: compile with `-fno-exceptions`, and return errors";
pub(crate) const ALIGNMENT: &str = "an image is aligned to at most a page: use an alignment of 4096 or less";
pub(crate) const TOO_LARGE: &str = "make the static data smaller, or let the target allocate it";
pub(crate) const TOO_FAR: &str = "what it refers to lies farther away: make the code or the static data of the image smaller; hand-written assembler can use an instruction that reaches farther";
pub(crate) const MALFORMED: &str =
    "compile the object again; if it stays so, please report it with the object";

pub(crate) const INTERMEDIATE_CODE: &str =
    "compile without `-flto` and, in Rust, without `-Clinker-plugin-lto`";
pub(crate) const FOREIGN: &str =
    "images are made of 64-bit objects for x86-64 or AArch64 Linux: compile for one of them";
pub(crate) const NO_OBJECT: &str = "link what `cc -c` or `ar rcs` made";
pub(crate) const THIN_ARCHIVE: &str =
    "the archive only names its members: make it without `T` (`ar rcs`), or link the members";

pub(crate) const SAME_ENTRY: &str =
    "an image tells its entries apart by their addresses: give each a function of its own, without an alias";
pub(crate) const TOO_MANY_ENTRIES: &str =
    "an ifunc that refers to another one is linked with it into one image: have fewer refer to each other";
pub(crate) const DUPLICATE: &str = "remove one of them, give it another name, or make it `static`";
pub(crate) const SECTION_BOUNDS: &str =
    "an image keeps no list of sections: put what the section collects into an array";
pub(crate) const LINKER_SYMBOL: &str = "the linker of a program defines it for the file of a program, and an image is not part of one: remove its use";

/// Help for an undefined symbol of a Rust image. `is_called`: by a branch. Otherwise its address is read, which compilers do for
/// variables, and for functions that they call in a loop.
pub(crate) fn undeclared(symbol: &str, is_called: bool) -> String {
    let written = declaration(symbol);
    let declare = if symbol.starts_with("__ifunc") {
        "names that begin with `__ifunc` are those of the runtime's own functions: use the `ifunc` of the version that this command has".into()
    } else if written.is_none() {
        "no declaration in Rust or C has this name: define it in assembler, in an object of the image, or remove its use".into()
    } else if is_called {
        let function = written.unwrap_or_default();
        format!(
            "declare it: `#[ifunc::import] unsafe extern \"C\" {{ {function} }}`, and export a function of this name from the target; or define it in C, in a file of the package's folder `c`"
        )
    } else {
        let function = written.unwrap_or_default();
        let variable = function.replace("fn ", "static ").replace("(..);", ": T;");
        format!(
            "declare it in an `#[ifunc::import] unsafe extern \"C\" {{ .. }}`: `{variable}` if it is a variable, `{function}` if it is a function; and export it under this name from the target; or define it in C, in a file of the package's folder `c`"
        )
    };
    match written_as(symbol) {
        Some(source) => format!("compilers write `{symbol}` for {source}; {declare}"),
        None if rustc_demangle::try_demangle(symbol).is_ok() => {
            "a Rust function that was declared but is in no crate of this build: is a dependency or a feature missing?".into()
        }
        None if symbol.starts_with("_Z") => {
            "a function or object of C++ that no input defines: link the object or archive that does, or give it a C name (`extern \"C\"`) and declare that".into()
        }
        None => declare,
    }
}

/// The declaration of a function of this name in an `#[ifunc::import]` block; `None` if that refuses the name.
fn declaration(symbol: &str) -> Option<String> {
    let is_identifier = !symbol.starts_with(|c: char| c.is_ascii_digit())
        && symbol.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if symbol.is_empty() || !is_identifier || symbol.len() > 255 {
        return None;
    }
    Some(match symbol {
        "_" => return None,
        _ if KEYWORDS.contains(&symbol) => format!("#[link_name = \"{symbol}\"] fn {symbol}_(..);"),
        _ => format!("fn {symbol}(..);"),
    })
}

/// What is no name in Rust and may be one in C.
const KEYWORDS: [&str; 39] = [
    "Self", "abstract", "as", "async", "await", "become", "box", "crate", "dyn", "false", "final", "fn",
    "gen", "impl", "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub",
    "ref", "self", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "yield",
];

/// Help for a function that a helper defines in C++.
pub(crate) fn cxx_helper(object: &str, function: &str) -> String {
    format!(
        "{object} defines `{function}`, whose symbol has the name that C++ gives it: declare it `extern \"C\"` there"
    )
}

/// The source construct that compilers turn into a call of `symbol`.
fn written_as(symbol: &str) -> Option<&'static str> {
    Some(match symbol {
        "puts" | "putchar" => "`printf`",
        "fputs" | "fputc" | "fwrite" => "`fprintf`",
        "calloc" => "`malloc` and a `memset` of zero",
        "bcmp" => "`memcmp` that is only compared with zero",
        "fmod" | "fmodf" => "`%` of floating-point numbers",
        "__udivti3" | "__divti3" | "__umodti3" | "__modti3" => "division of 128-bit integers",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the help proposes, `#[ifunc::import]` accepts (`ifunc-macros/src/signature.rs`).
    #[test]
    fn names_that_cannot_be_declared_are_not_proposed() {
        let proposes = |symbol: &str, text: &str| {
            let help = undeclared(symbol, true);
            assert!(help.contains(text), "{symbol}: {help}");
        };
        proposes("lookup", "{ fn lookup(..); }");
        proposes("match", "{ #[link_name = \"match\"] fn match_(..); }");
        proposes("table.3", "no declaration in Rust or C has this name");
        proposes("__ifunc_nothing", "the runtime's own functions");
        let help = undeclared("move", false);
        assert!(
            help.contains("`#[link_name = \"move\"] static move_: T;`"),
            "{help}"
        );
        for symbol in ["9lives", "a$b", "__ifunc_x", "_"] {
            assert!(!undeclared(symbol, true).contains("#[ifunc::import]"), "{symbol}");
        }
    }
}
