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
    /* Buffer for an answer; null when the source waits for none. */
    uint8_t *answer;
    /* Size of the buffer in bytes. */
    size_t answer_capacity;
    /* Bytes of the answer, set by the ifunc. More than the capacity: it did not fit. */
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

/* Answers `len` bytes, replacing an earlier answer; returns the status that `main` returns. */
static inline uint32_t ifunc_answer(struct ifunc_context *ctx, const void *bytes, size_t len)
{
    if (!ifunc_wants_answer(ctx))
        return IFUNC_OK;
    ctx->answer_len = len;
    if (len > ctx->answer_capacity)
        return IFUNC_BAD_ANSWER;
    if (len)
        __builtin_memcpy(ctx->answer, bytes, len);
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

/* ---- Functions of the target. ---- */

/* Declares one: `IFUNC_IMPORT(int, compare, const void *a, const void *b);`. `cargo ifunc
 * inspect` prints the C prototype of a function that was exported in Rust, for a Rust ifunc that imports it: integers and floats are
 * themselves, `bool` is `uint8_t`, `&T` a pointer, `&[T]` and `&str` a pointer and a `size_t`. */
#define IFUNC_IMPORT(result, name, ...) IFUNC_EXTERN result name(__VA_ARGS__)

/* Declares a function that a target may lack: its address is null there. */
#define IFUNC_IMPORT_IF_THERE(result, name, ...) IFUNC_EXTERN __attribute__((weak)) result name(__VA_ARGS__)

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
