/* ifunc.h: for authors of injected functions in C (C11, gcc or clang) and for their headers in C++.
 *
 * `cargo ifunc build foo.c` finds this file by itself: `#include <ifunc.h>`. It is optional: an ifunc is three
 * functions, and a file without this header builds the same. The header declares the prototypes of these functions, so
 * that the compiler checks them, and the context through which an ifunc uses its target.
 *
 *     #include <ifunc.h>
 *
 *     IFUNC_PAYLOAD_BOUND(add);
 *     IFUNC_MAIN_WITH_CONTEXT(add);
 *     IFUNC_IMPORT(void, announce, uint64_t counter);
 *
 *     size_t add_payload_bound(void *source_args, size_t n) { ... }
 *     int add_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size) { ... }
 *     uint32_t add_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
 *     {
 *         uint64_t delta, *counter = target_args;
 *         if (payload_size != sizeof delta)
 *             return IFUNC_BAD_PAYLOAD;
 *         memcpy(&delta, payload, sizeof delta);
 *         *counter += delta;
 *         announce(*counter);
 *         return ifunc_answer(ctx, counter, sizeof *counter);
 *     }
 */
#ifndef IFUNC_H
#define IFUNC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
template <class A, class B> struct ifunc_same_types {
    static const bool value = false;
};
template <class A> struct ifunc_same_types<A, A> {
    static const bool value = true;
};
#define IFUNC_EXTERN extern "C"
#define IFUNC_STATIC_ASSERT static_assert
#define IFUNC_SAME_TYPES(a, b) (ifunc_same_types<a, b>::value)
#else
#define IFUNC_EXTERN extern
#define IFUNC_STATIC_ASSERT _Static_assert
#define IFUNC_SAME_TYPES(a, b) __builtin_types_compatible_p(a, b)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The three functions. Two run on the source and write the payload; `NAME_main` travels. ---- */

/* `payload_bound` and its `payload_init`. The first returns an upper bound of the payload's size in bytes. The second
 * writes the payload, lowers `*payload_size` to its size, and returns 0, or another number on failure. */
#define IFUNC_PAYLOAD_BOUND(name)                                                                                      \
    IFUNC_EXTERN size_t name##_payload_bound(void *source_args, size_t n);                                             \
    IFUNC_EXTERN int name##_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)

/* The same in the argument order of the first UCX ifunc API. The payload has the size that the first returned. */
#define IFUNC_PAYLOAD_MAX_SIZE(name)                                                                                   \
    IFUNC_EXTERN size_t name##_payload_get_max_size(void *source_args, size_t n);                                      \
    IFUNC_EXTERN int name##_payload_init(void *payload, size_t payload_size, void *source_args, size_t n)

/* A `main` that returns nothing: every invocation of it succeeds. */
#define IFUNC_MAIN(name) IFUNC_EXTERN void name##_main(void *payload, size_t payload_size, void *target_args)

/* Declares the `main` with a context of another ifunc, in this file or in another one of the same build, so that this one can send or
 * forward to it: `IFUNC_DECLARE_WITH_CONTEXT(visit);`. For a `main` that returns nothing `IFUNC_MAIN(visit);` does. */
#define IFUNC_DECLARE_WITH_CONTEXT(name)                                                                               \
    IFUNC_EXTERN uint32_t name##_main(void *payload, size_t payload_size, void *target_args,                           \
                                      struct ifunc_context *ctx)

/* A `main` that takes the context and returns a status. The declaration leaves a mark in the object, by which the
 * builder knows that the result is a status. */
#define IFUNC_MAIN_WITH_CONTEXT(name)                                                                                  \
    IFUNC_EXTERN uint32_t name##_main(void *payload, size_t payload_size, void *target_args,                           \
                                      struct ifunc_context *ctx);                                                      \
    IFUNC_EXTERN __attribute__((weak)) const char name##_main_returns_status;                                          \
    const char name##_main_returns_status = 1;                                                                         \
    IFUNC_EXTERN const char name##_main_returns_status

/* Declares that a `main` may run on several threads of its target at the same time: it changes the target's data and its
 * own static variables only by atomic operations or by thread-safe functions of the target. A target that serves on
 * several threads refuses ifuncs without this. At file scope, once. */
#define IFUNC_SHAREABLE(name)                                                                                          \
    IFUNC_EXTERN __attribute__((weak)) const char name##_main_is_shareable;                                            \
    const char name##_main_is_shareable = 1;                                                                           \
    IFUNC_EXTERN const char name##_main_is_shareable

/* Declares that an invocation may run twice without harm. When a connection dies, a source sends one that may have run again;
 * without this, such a call ends with an error. At file scope, once. */
#define IFUNC_IDEMPOTENT(name)                                                                                         \
    IFUNC_EXTERN __attribute__((weak)) const char name##_main_is_idempotent;                                           \
    const char name##_main_is_idempotent = 1;                                                                          \
    IFUNC_EXTERN const char name##_main_is_idempotent

/* Results of `main`. It ran to its end: */
#define IFUNC_OK UINT32_C(0)
/* The payload does not decode; the source gets that error: */
#define IFUNC_BAD_PAYLOAD UINT32_C(1)
/* The answer does not fit or cannot be made: */
#define IFUNC_BAD_ANSWER UINT32_C(2)

/* ---- The context: what the target provides to an invocation beside its target arguments. ---- */

/* Levels of `log`. */
#define IFUNC_LOG_ERROR UINT32_C(1)
#define IFUNC_LOG_WARN UINT32_C(2)
#define IFUNC_LOG_INFO UINT32_C(3)
#define IFUNC_LOG_DEBUG UINT32_C(4)
#define IFUNC_LOG_TRACE UINT32_C(5)

/* Fields are only ever added at the end; `size` shows which exist. A pointer to it may be null: then no answer can be
 * given. */
struct ifunc_context {
    /* ABI version of the target. */
    uint32_t version;
    /* Size of this struct on the target, in bytes. */
    uint32_t size;
    /* The connection that the payload came over: a number that the target gives each connection, never reused. */
    uint64_t sender;
    /* Buffer for an answer that is not long; null when the source waits for none. */
    uint8_t *answer;
    /* Size of the buffer in bytes. */
    size_t answer_capacity;
    /* Bytes of the answer, set by the ifunc. More than the capacity: it lies elsewhere (`ifunc_answer_memory`), or did not fit. */
    size_t answer_len;
    /* Logs UTF-8 text of `len` bytes; never null. */
    void (*log)(struct ifunc_context *ctx, uint32_t level, const uint8_t *message, size_t len);
    /* The target's own. */
    void *host;
};

/* Whether the source waits for an answer. */
static inline int ifunc_wants_answer(const struct ifunc_context *ctx)
{
    return ctx && ctx->answer;
}

/* What every target provides for answers that do not fit into the buffer; private to the functions below. */
IFUNC_EXTERN void *__ifunc_answer(struct ifunc_context *ctx, size_t size);
IFUNC_EXTERN size_t __ifunc_max_answer(struct ifunc_context *ctx);

/* The length of the longest answer that the target gives and the source takes; 0 if no source waits for one. */
static inline size_t ifunc_max_answer(struct ifunc_context *ctx)
{
    return ifunc_wants_answer(ctx) ? __ifunc_max_answer(ctx) : 0;
}

/* Makes the answer `size` bytes long and returns the memory to write it to, aligned to 8 bytes; null if no source waits for an answer,
 * or it may not have so many (then `main` returns IFUNC_BAD_ANSWER). The next call of these functions invalidates it. What
 * was written before stays when a size follows another, both being more than `answer_capacity`, or both not. */
static inline void *ifunc_answer_memory(struct ifunc_context *ctx, size_t size)
{
    if (!ifunc_wants_answer(ctx))
        return 0;
    ctx->answer_len = size;
    return size > ctx->answer_capacity ? __ifunc_answer(ctx, size) : ctx->answer;
}

/* Answers `len` bytes, replacing an earlier answer; returns the status that `main` returns. */
static inline uint32_t ifunc_answer(struct ifunc_context *ctx, const void *bytes, size_t len)
{
    void *out;
    if (!ifunc_wants_answer(ctx))
        return IFUNC_OK;
    out = ifunc_answer_memory(ctx, len);
    if (!out)
        return IFUNC_BAD_ANSWER;
    if (len)
        __builtin_memcpy(out, bytes, len);
    return IFUNC_OK;
}

/* The connection that the payload came over; 0 without a context. */
static inline uint64_t ifunc_sender(const struct ifunc_context *ctx)
{
    return ctx ? ctx->sender : 0;
}

/* Logs a text that ends in a zero byte, at one of the levels above. */
static inline void ifunc_log(struct ifunc_context *ctx, uint32_t level, const char *text)
{
    if (ctx)
        ctx->log(ctx, level, (const uint8_t *)text, __builtin_strlen(text));
}

/* ---- Objects of the target. ---- */

/* Drops an object that a function of the target returned for this invocation to hold (`Owned` in Rust). The target does so by itself
 * when the invocation ends by a fault; an object that is neither released nor passed back otherwise is lost memory. */
IFUNC_EXTERN void __ifunc_release(void *object);
static inline void ifunc_release(void *object)
{
    __ifunc_release(object);
}

/* ---- What the target's system provides. ---- */

IFUNC_EXTERN uint32_t __ifunc_random(void *out, size_t len);
IFUNC_EXTERN uint64_t __ifunc_unix_time(void);

/* Fills memory with random bytes of the target's system, which are fit for keys. Not 0: the system has none. */
static inline uint32_t ifunc_random(void *out, size_t len)
{
    return __ifunc_random(out, len);
}

/* Nanoseconds since the beginning of 1970, by the target's clock, which may be set meanwhile. */
static inline uint64_t ifunc_unix_time(void)
{
    return __ifunc_unix_time();
}

/* ---- Travelling on. A target that has joined a group is a node with a number. There an invocation sends others,
 * forwards itself to another node, or answers in parts. What it sends leaves when it has ended. ---- */

/* The number of no node. */
#define IFUNC_NO_NODE UINT32_MAX
/* A deadline that never passes. */
#define IFUNC_NO_DEADLINE UINT64_MAX

/* Where an invocation is on its way. Fields are only ever added at the end; `size` shows which exist. */
struct ifunc_travel {
    /* Size of this struct on the target, in bytes. */
    uint32_t size;
    /* The number of this node; IFUNC_NO_NODE: the target is not a node of a group. */
    uint32_t node;
    /* How many nodes forwarded or sent before. */
    uint16_t hops;
    /* How many hops may follow. */
    uint16_t hops_left;
    /* Number of `peers`. */
    uint32_t peer_count;
    /* When the source stops waiting, in nanoseconds on the clock of `ifunc_now`, or IFUNC_NO_DEADLINE. */
    uint64_t deadline;
    /* The numbers of the other nodes, ascending. */
    const uint32_t *peers;
};

/* Results of `ifunc_send`, `ifunc_forward` and `ifunc_reply`. It was accepted: */
#define IFUNC_SENT UINT32_C(0)
/* There is no memory for it now, because other nodes do not take what was sent before: */
#define IFUNC_BUSY UINT32_C(1)
/* The group has no such node, or the node is lost: */
#define IFUNC_NO_SUCH_NODE UINT32_C(2)
/* The target is no node of a group: */
#define IFUNC_NO_GROUP UINT32_C(3)
/* The invocation made as many hops as it may: */
#define IFUNC_HOP_LIMIT UINT32_C(4)
/* The payload or the part exceeds a limit: */
#define IFUNC_TOO_LARGE UINT32_C(5)
/* The image has no such entry: */
#define IFUNC_NO_ENTRY UINT32_C(6)
/* The entry answers with another type than the call expects: */
#define IFUNC_ANSWER_TYPE UINT32_C(7)
/* The invocation was forwarded or answered before: */
#define IFUNC_ENDED UINT32_C(8)
/* The source has not taken enough parts yet, or takes one answer only: */
#define IFUNC_WINDOW UINT32_C(9)

/* What every target provides. `ifunc_outgoing` returns memory for the next payload or part, aligned to 64 bytes; null if
 * `size` exceeds a limit or there is no group. The next of these calls invalidates it. */
IFUNC_EXTERN const struct ifunc_travel *__ifunc_travel(struct ifunc_context *ctx);
IFUNC_EXTERN void *__ifunc_outgoing(struct ifunc_context *ctx, size_t size);
IFUNC_EXTERN uint32_t __ifunc_send(struct ifunc_context *ctx, uint32_t node, const void *entry_main, size_t len);
IFUNC_EXTERN uint32_t __ifunc_forward(struct ifunc_context *ctx, uint32_t node, const void *entry_main, size_t len);
IFUNC_EXTERN uint32_t __ifunc_reply(struct ifunc_context *ctx, size_t len);
IFUNC_EXTERN uint64_t __ifunc_now(void);

/* The number of this node, or IFUNC_NO_NODE. */
static inline uint32_t ifunc_node(struct ifunc_context *ctx)
{
    return __ifunc_travel(ctx)->node;
}

/* Where the invocation is on its way: never null. */
static inline const struct ifunc_travel *ifunc_travel(struct ifunc_context *ctx)
{
    return __ifunc_travel(ctx);
}

/* Nanoseconds on a clock of the target that never goes back. */
static inline uint64_t ifunc_now(void)
{
    return __ifunc_now();
}

/* Memory in which to write the next payload, for `ifunc_send_written` and `ifunc_forward_written`. */
static inline void *ifunc_outgoing(struct ifunc_context *ctx, size_t size)
{
    return __ifunc_outgoing(ctx, size);
}

/* Copies bytes into the memory for the next payload. Private to the functions below. */
static inline uint32_t ifunc_write_outgoing(struct ifunc_context *ctx, const void *bytes, size_t len)
{
    void *out = __ifunc_outgoing(ctx, len);
    if (!out)
        return __ifunc_travel(ctx)->node == IFUNC_NO_NODE ? IFUNC_NO_GROUP : IFUNC_TOO_LARGE;
    if (len)
        __builtin_memcpy(out, bytes, len);
    return IFUNC_SENT;
}

/* Starts another invocation, of the ifunc `name` of this image, on a node: `ifunc_send(ctx, node, visit, &next, sizeof
 * next)`. Its answer is dropped. The builder makes `name` an entry of the image by this reference. */
#define ifunc_send(ctx, node, name, bytes, len) ifunc_send_to((ctx), (node), (const void *)&name##_main, (bytes), (len))

/* Lets an invocation of the ifunc `name` go on in place of this one, on a node. That one answers; after this, return IFUNC_OK and
 * do not answer. */
#define ifunc_forward(ctx, node, name, bytes, len)                                                                     \
    ifunc_forward_to((ctx), (node), (const void *)&name##_main, (bytes), (len))

/* The same for the first `len` bytes of `ifunc_outgoing`. */
#define ifunc_send_written(ctx, node, name, len) __ifunc_send((ctx), (node), (const void *)&name##_main, (len))
#define ifunc_forward_written(ctx, node, name, len) __ifunc_forward((ctx), (node), (const void *)&name##_main, (len))

static inline uint32_t ifunc_send_to(struct ifunc_context *ctx, uint32_t node, const void *entry_main,
                                     const void *bytes, size_t len)
{
    uint32_t result = ifunc_write_outgoing(ctx, bytes, len);
    return result ? result : __ifunc_send(ctx, node, entry_main, len);
}

static inline uint32_t ifunc_forward_to(struct ifunc_context *ctx, uint32_t node, const void *entry_main,
                                        const void *bytes, size_t len)
{
    uint32_t result = ifunc_write_outgoing(ctx, bytes, len);
    return result ? result : __ifunc_forward(ctx, node, entry_main, len);
}

/* Sends a part of the answer to a source that takes a stream. */
static inline uint32_t ifunc_reply(struct ifunc_context *ctx, const void *bytes, size_t len)
{
    uint32_t result = ifunc_write_outgoing(ctx, bytes, len);
    return result ? result : __ifunc_reply(ctx, len);
}

/* ---- Functions and variables of the target. ---- */

/* Declares a function: `IFUNC_IMPORT(int, compare, const void *a, const void *b);`. `cargo ifunc
 * inspect` prints the C prototype of a function that was exported in Rust, for a Rust ifunc that imports it: integers and floats are
 * themselves, `bool` is `uint8_t`, `&T` a pointer, `&[T]` and `&str` a pointer and a `size_t`. */
#define IFUNC_IMPORT(result, name, ...) IFUNC_EXTERN result name(__VA_ARGS__)

/* Declares a function that a target may lack: its address is null there. */
#define IFUNC_IMPORT_IF_THERE(result, name, ...) IFUNC_EXTERN __attribute__((weak)) result name(__VA_ARGS__)

/* Declares a variable of the target: `IFUNC_IMPORT_DATA(uint64_t, level);`. The declaration leaves a mark in the object, by which the
 * builder knows that it is one; a target that exports a function of this name refuses the image. For an array, and for a
 * pointer to a function, name the type by a `typedef`. At file scope, once. */
#define IFUNC_IMPORT_DATA(type, name)                                                                                  \
    IFUNC_EXTERN type name;                                                                                            \
    IFUNC_MARK_DATA(name)

/* Declares a variable that a target may lack: its address is null there. */
#define IFUNC_IMPORT_DATA_IF_THERE(type, name)                                                                         \
    IFUNC_EXTERN __attribute__((weak)) type name;                                                                      \
    IFUNC_MARK_DATA(name)

/* Private to the two macros above. */
#define IFUNC_MARK_DATA(name)                                                                                          \
    IFUNC_EXTERN __attribute__((weak)) const char name##_is_imported_data;                                             \
    const char name##_is_imported_data = 1;                                                                            \
    IFUNC_EXTERN const char name##_is_imported_data

/* ---- Replacing what the target exports. ---- */

/* Results of `ifunc_replace_export`. It was replaced: */
#define IFUNC_REPLACED UINT32_C(0)
/* No export has the name, or it has another type; the target logs which: */
#define IFUNC_REPLACE_REFUSED UINT32_C(1)
/* A text is not UTF-8 or longer than 4096 bytes, or the replacement is not of this image: */
#define IFUNC_REPLACE_BAD_ARGUMENT UINT32_C(2)

IFUNC_EXTERN uint32_t __ifunc_replace_export(struct ifunc_context *ctx, const char *name, size_t name_len,
                                             const char *signature, size_t signature_len, const void *replacement);

/* Replaces the export `name` of the target by a function or a variable of this image, for the ifuncs of all sources:
 *
 *     static uint32_t half(uint32_t words) { return words / 2; }
 *     ifunc_replace_export(ctx, "score", "fn score(u32)->u32", half)
 *
 * `signature` is the text of its type, which `cargo ifunc inspect --json` prints for a Rust ifunc that imports it; an export without a
 * stated type is replaced with any. The target's builder must allow it (`allow_remote_exports`); others refuse the image. */
#define ifunc_replace_export(ctx, name, signature, replacement)                                                        \
    ifunc_replace_export_by((ctx), (name), (signature), (const void *)&(replacement))

static inline uint32_t ifunc_replace_export_by(struct ifunc_context *ctx, const char *name, const char *signature,
                                               const void *replacement)
{
    return __ifunc_replace_export(ctx, name, __builtin_strlen(name), signature, __builtin_strlen(signature), replacement);
}

/* ---- Assertions at compile time. ---- */

/* A function has this prototype: `IFUNC_ASSERT_PROTOTYPE(compare, int, const void *, const void *);`, with `void` for
 * no parameters. For declarations of other headers. */
#define IFUNC_ASSERT_PROTOTYPE(function, result, ...)                                                                  \
    IFUNC_STATIC_ASSERT(IFUNC_SAME_TYPES(__typeof__(&function), result (*)(__VA_ARGS__)),                              \
                        "`" #function "` is not `" #result " " #function "(" #__VA_ARGS__ ")`")

/* A type has this size and alignment: those in brackets at the end of a type that `cargo ifunc inspect` prints. */
#define IFUNC_ASSERT_LAYOUT(type, bytes, alignment)                                                                    \
    IFUNC_STATIC_ASSERT(sizeof(type) == (bytes) && __alignof__(type) == (alignment),                                   \
                        "`" #type "` does not have " #bytes " bytes, aligned to " #alignment)

#ifdef __cplusplus
}
#endif

#endif
