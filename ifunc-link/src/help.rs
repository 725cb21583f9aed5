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
pub(crate) const MALFORMED: &str =
    "compile the object again; if it stays so, please report it with the object";

pub(crate) const INTERMEDIATE_CODE: &str =
    "compile without `-flto` and, in Rust, without `-Clinker-plugin-lto`";
pub(crate) const FOREIGN: &str = "images are made of 64-bit objects for x86-64 Linux: compile for that";
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
pub(crate) const LINKER_SYMBOL: &str = "the linker of a program defines it for the program's own file, of which an image is no part: remove its use";

/// Help for an undefined symbol of a Rust image. `is_called`: by a branch. Otherwise its address is read, which compilers do for
/// variables, and for functions that they call in a loop.
pub(crate) fn undeclared(symbol: &str, is_called: bool) -> String {
    let declare = if is_called {
        format!(
            "declare it: `#[ifunc::import] unsafe extern \"C\" {{ fn {symbol}(..); }}`, and export a function of this name from the target; or define it in C, in a file of the package's folder `c`"
        )
    } else {
        format!(
            "declare it in an `#[ifunc::import] unsafe extern \"C\" {{ .. }}`: `static {symbol}: T;` if it is a variable, `fn {symbol}(..);` if it is a function; and export it under this name from the target; or define it in C, in a file of the package's folder `c`"
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
