//! Symbols and sections with a fixed meaning.

/// The four functions that the SDK imports and every target provides. Their C prototypes:
///
/// ```c
/// _Noreturn void __ifunc_panic(const char *message, size_t message_len,
///                              const char *file, size_t file_len, uint32_t line, uint32_t column);
/// void *__ifunc_alloc(size_t size, size_t align);                      // null: out of memory
/// void  __ifunc_dealloc(void *ptr, size_t size, size_t align);
/// void *__ifunc_realloc(void *ptr, size_t size, size_t align, size_t new_size);
/// ```
pub const RUNTIME_IMPORTS: [&str; 4] = [PANIC, ALLOC, DEALLOC, REALLOC];
/// Ends the invocation; does not return.
pub const PANIC: &str = "__ifunc_panic";
/// Allocates from the target's allocator.
pub const ALLOC: &str = "__ifunc_alloc";
/// Returns memory to the target's allocator.
pub const DEALLOC: &str = "__ifunc_dealloc";
/// Grows or shrinks memory of the target's allocator.
pub const REALLOC: &str = "__ifunc_realloc";

/// Functions that compilers emit calls to. Every image may import them; a Rust image contains its own.
pub const COMPILER_IMPORTS: [&str; 7] = [
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "strlen",
    "__stack_chk_fail",
];

/// Section of an ifunc library (`.so`) that holds an image: this prefix and the ifunc's name.
pub const IMAGE_SECTION: &str = ".ifunc.image.";
/// Section of an ifunc library (`.so`) that holds an [`about`](crate::about) description: this prefix and the
/// name.
pub const ABOUT_SECTION: &str = ".ifunc.about.";
/// Section of an ifunc library (`.so`) that holds a relocatable ELF file with the image's symbols and lines
/// for debuggers: this prefix and the name.
pub const DEBUG_SECTION: &str = ".ifunc.debug.";
/// Section of an object file that holds [`meta`](crate::meta) records.
pub const META_SECTION: &str = ".ifunc.meta";

/// `X_main`: the function that travels.
pub const MAIN_SUFFIX: &str = "_main";
/// `X_payload_bound(source_args, n)` returns an upper bound of the payload's size; then the source calls
/// `X_payload_init(source_args, n, payload, *size)`.
pub const BOUND_SUFFIX: &str = "_payload_bound";
/// `X_payload_get_max_size(source_args, n)` is the same function in the first UCX ifunc API; then the source
/// calls `X_payload_init(payload, size, source_args, n)`.
pub const MAX_SIZE_SUFFIX: &str = "_payload_get_max_size";
/// `X_payload_init` writes the payload; which of the two symbols above exists decides its argument order.
pub const INIT_SUFFIX: &str = "_payload_init";
