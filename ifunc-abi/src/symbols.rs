//! Symbols and sections with a fixed meaning.

/// The functions that the SDK imports and every target provides: those of [`TRAVEL_IMPORTS`], and more. The C prototypes of
/// these:
///
/// ```c
/// _Noreturn void __ifunc_panic(const char *message, size_t message_len,
///                              const char *file, size_t file_len, uint32_t line, uint32_t column);
/// void *__ifunc_alloc(size_t size, size_t align);                      // null: out of memory
/// void  __ifunc_dealloc(void *ptr, size_t size, size_t align);
/// void *__ifunc_realloc(void *ptr, size_t size, size_t align, size_t new_size);
/// void *__ifunc_answer(struct ifunc_context *, size_t size);           // null: more than a limit, or no caller waits
/// size_t __ifunc_max_answer(struct ifunc_context *);
/// void  __ifunc_release(void *object);
/// uint32_t __ifunc_random(void *out, size_t len);                      // 0: all bytes were written
/// uint64_t __ifunc_unix_time(void);
/// ```
pub const RUNTIME_IMPORTS: [&str; 15] = [
    PANIC, ALLOC, DEALLOC, REALLOC, ANSWER, MAX_ANSWER, RELEASE, RANDOM, UNIX_TIME, TRAVEL, OUTGOING, SEND,
    FORWARD, REPLY, NOW,
];
/// Drops an object of the host that the invocation holds.
pub const RELEASE: &str = "__ifunc_release";
/// Fills memory with random bytes of the target's system.
pub const RANDOM: &str = "__ifunc_random";
/// Nanoseconds since the beginning of 1970, by the target's clock.
pub const UNIX_TIME: &str = "__ifunc_unix_time";
/// Makes the answer `size` bytes long, in memory of its own, and returns that memory: initialised, aligned to 8 bytes, valid until
/// the next call or the end of the invocation. The bytes of an answer that was made so before stay, as far as they fit. It sets
/// [`Context::answer_len`](crate::context::Context::answer_len) to a number above every capacity; to set it again replaces the answer.
pub const ANSWER: &str = "__ifunc_answer";
/// The length of the longest answer that the target gives and the source takes; 0 if no caller waits for one.
pub const MAX_ANSWER: &str = "__ifunc_max_answer";
/// Ends the invocation; does not return.
pub const PANIC: &str = "__ifunc_panic";
/// Allocates from the target's allocator.
pub const ALLOC: &str = "__ifunc_alloc";
/// Returns memory to the target's allocator.
pub const DEALLOC: &str = "__ifunc_dealloc";
/// Grows or shrinks memory of the target's allocator.
pub const REALLOC: &str = "__ifunc_realloc";

/// The functions by which an invocation travels on, beside [`NOW`]. An image that imports one of them
/// [travels](crate::image::Image::travels). Their C prototypes:
///
/// ```c
/// const struct ifunc_travel *__ifunc_travel(struct ifunc_context *);
/// void    *__ifunc_outgoing(struct ifunc_context *, size_t size);      // null: more than a limit, or no group
/// uint32_t __ifunc_send(struct ifunc_context *, uint32_t node, const void *entry_main, size_t len);
/// uint32_t __ifunc_forward(struct ifunc_context *, uint32_t node, const void *entry_main, size_t len);
/// uint32_t __ifunc_reply(struct ifunc_context *, size_t len);
/// uint64_t __ifunc_now(void);
/// ```
///
/// A context may be null. Results are 0 or the code of a [`TravelError`](crate::travel::TravelError).
pub const TRAVEL_IMPORTS: [&str; 5] = [TRAVEL, OUTGOING, SEND, FORWARD, REPLY];
/// The invocation's [`Travel`](crate::context::Travel); never null, valid until the invocation ends.
pub const TRAVEL: &str = "__ifunc_travel";
/// Memory for the next payload or partial answer: private to the invocation, aligned to 64 bytes, valid until the next call
/// of one of these functions. Private, because an invocation that panics while it writes must leave no link locked.
pub const OUTGOING: &str = "__ifunc_outgoing";
/// Sends the first `len` bytes of the outgoing memory to an entry of this image on a node: another invocation, without an
/// obligation to answer. The entry is named by the address of its `X_main`.
pub const SEND: &str = "__ifunc_send";
/// As [`SEND`], and the other invocation takes over the obligation to answer.
pub const FORWARD: &str = "__ifunc_forward";
/// Sends the first `len` bytes of the outgoing memory as the next partial answer of a streamed call.
pub const REPLY: &str = "__ifunc_reply";
/// Nanoseconds on a clock of the target that never goes back.
pub const NOW: &str = "__ifunc_now";

/// Replaces an export of the target by a function or a variable of the image, if the target's builder allows that: others refuse an image
/// that imports it. Its C prototype:
///
/// ```c
/// uint32_t __ifunc_replace_export(struct ifunc_context *, const char *name, size_t name_len,
///                                 const char *signature, size_t signature_len, const void *address);
/// ```
pub const REPLACE_EXPORT: &str = "__ifunc_replace_export";

/// What compilers refer to on their own: functions, and [`STACK_GUARD`]. Every image may import them; a Rust image contains its own
/// functions.
pub const COMPILER_IMPORTS: [&str; 8] = [
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "strlen",
    "__stack_chk_fail",
    STACK_GUARD,
];

/// The variable whose value guarded stack frames hold, of the type `uintptr_t`, on AArch64. Compilers for x86-64 take the value from the
/// thread.
pub const STACK_GUARD: &str = "__stack_chk_guard";

/// Section of an ifunc library (`.so`) that holds an ifunc's images, as [`slices`](crate::slices): this prefix and the ifunc's name.
pub const IMAGE_SECTION: &str = ".ifunc.image.";
/// Section of an ifunc library (`.so`) that holds an [`about`](crate::about) description: this prefix and the
/// name.
pub const ABOUT_SECTION: &str = ".ifunc.about.";
/// Section of an ifunc library (`.so`) that holds, as [`slices`](crate::slices), a relocatable ELF file with the symbols and lines
/// of each image for debuggers: this prefix and the name.
pub const DEBUG_SECTION: &str = ".ifunc.debug.";
/// Section of an object file that holds [`meta`](crate::meta) records.
pub const META_SECTION: &str = ".ifunc.meta";

/// `X_main`: the function that travels.
pub const MAIN_SUFFIX: &str = "_main";
/// Prefix of the function that runs a run of entries: `__ifunc_batch_X`, called `X_batch` in the documentation. Reserved,
/// because an author may call a function `X_batch`.
pub const BATCH_PREFIX: &str = "__ifunc_batch_";
/// `X_payload_bound(source_args, n)` returns an upper bound of the payload's size; then the source calls
/// `X_payload_init(source_args, n, payload, *size)`.
pub const BOUND_SUFFIX: &str = "_payload_bound";
/// `X_payload_get_max_size(source_args, n)` is the same function in the first UCX ifunc API; then the source
/// calls `X_payload_init(payload, size, source_args, n)`.
pub const MAX_SIZE_SUFFIX: &str = "_payload_get_max_size";
/// `X_payload_init` writes the payload; which of the two symbols above exists decides its argument order.
pub const INIT_SUFFIX: &str = "_payload_init";
