/* The source-side runtime of a Rust ifunc: the imports that every target provides, and the two functions of the C
   interface, which catch panics. It is compiled once for all ifuncs. In the copy of the object for one library, the two
   functions have the names of the ifunc's functions, and the functions that they call have the names below. The ifunc's
   name is a string beside the image. */

#include <errno.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The name of the ifunc. */
extern HIDDEN const char __ifunc_runtime_name[];

/* A place to return to. The compiler's own functions save two registers and an address, and the compiler the registers that it uses;
   those of the C library save and hide all of them, which takes as long as to write a short payload. */
#if defined(__x86_64__)
typedef void *net_buf[5];
#define NET_SET(buf) __builtin_setjmp(buf)
#define NET_JUMP(buf) __builtin_longjmp(buf, 1)
#else
typedef jmp_buf net_buf;
#define NET_SET(buf) _setjmp(buf)
#define NET_JUMP(buf) longjmp(buf, 1)
#endif

/* Where a panic of this thread returns to; null outside the two functions. */
static __thread net_buf *net;

HIDDEN _Noreturn void __ifunc_panic(const char *message, size_t message_len, const char *file, size_t file_len,
                                    uint32_t line, uint32_t column)
{
    fprintf(stderr, "ifunc `%s` panicked on the source at %.*s:%u:%u:\n%.*s\n",
            __ifunc_runtime_name, file ? (int)file_len : 0, file ? file : "", line, column, message ? (int)message_len : 0,
            message ? message : "");
    if (net)
        NET_JUMP(*net);
    abort();
}

HIDDEN void *__ifunc_alloc(size_t size, size_t align)
{
    void *ptr = NULL;
    if (align <= _Alignof(max_align_t))
        return malloc(size ? size : 1);
    return posix_memalign(&ptr, align, size ? size : 1) ? NULL : ptr;
}

HIDDEN void __ifunc_dealloc(void *ptr, size_t size, size_t align)
{
    (void)size;
    (void)align;
    free(ptr);
}

HIDDEN void *__ifunc_realloc(void *ptr, size_t size, size_t align, size_t new_size)
{
    void *moved;
    if (align <= _Alignof(max_align_t))
        return realloc(ptr, new_size ? new_size : 1);
    moved = __ifunc_alloc(new_size, align);
    if (moved) {
        memcpy(moved, ptr, size < new_size ? size : new_size);
        free(ptr);
    }
    return moved;
}

/* The source runs no invocation: there is no one who waits for an answer. */
HIDDEN void *__ifunc_answer(void *ctx, size_t size)
{
    (void)ctx;
    (void)size;
    return NULL;
}

HIDDEN size_t __ifunc_max_answer(void *ctx)
{
    (void)ctx;
    return 0;
}

/* Hosts hand out no objects to a source. */
HIDDEN void __ifunc_release(void *object)
{
    (void)object;
}

HIDDEN uint32_t __ifunc_random(void *out, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t got = getrandom((unsigned char *)out + done, len - done, 0);
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EINTR)
            return 1;
    }
    return 0;
}

HIDDEN uint64_t __ifunc_unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The source is no node of a group: nothing travels on from it. As `struct ifunc_travel` of ifunc.h. */
static const struct {
    uint32_t size, node;
    uint16_t hops, hops_left;
    uint32_t peer_count;
    uint64_t deadline;
    const uint32_t *peers;
} no_group = {sizeof no_group, UINT32_MAX, 0, 0, 0, UINT64_MAX, NULL};

enum { NO_GROUP = 3 };

HIDDEN const void *__ifunc_travel(void *ctx)
{
    (void)ctx;
    return &no_group;
}

HIDDEN void *__ifunc_outgoing(void *ctx, size_t size)
{
    (void)ctx;
    (void)size;
    return NULL;
}

HIDDEN uint32_t __ifunc_send(void *ctx, uint32_t node, const void *entry_main, size_t len)
{
    (void)ctx;
    (void)node;
    (void)entry_main;
    (void)len;
    return NO_GROUP;
}

HIDDEN uint32_t __ifunc_forward(void *ctx, uint32_t node, const void *entry_main, size_t len)
{
    return __ifunc_send(ctx, node, entry_main, len);
}

HIDDEN uint32_t __ifunc_reply(void *ctx, size_t len)
{
    (void)ctx;
    (void)len;
    return NO_GROUP;
}

HIDDEN uint64_t __ifunc_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Landing pads refer to these. With panic=abort they never run. */
HIDDEN _Noreturn void _Unwind_Resume(void *exception)
{
    (void)exception;
    abort();
}

HIDDEN void rust_eh_personality(void)
{
    abort();
}

size_t __ifunc_inner_bound(const void *source_args, size_t n);
int __ifunc_inner_init(const void *source_args, size_t n, void *payload, size_t *payload_size);

/* Each finds the variable of its thread once, which is a call of the loader. */

size_t __ifunc_runtime_bound(const void *source_args, size_t n)
{
    net_buf here, **volatile place = &net, *volatile outer = *place;
    size_t bound;
    if (NET_SET(here)) {
        *place = outer;
        return SIZE_MAX;
    }
    *place = &here;
    bound = __ifunc_inner_bound(source_args, n);
    *place = outer;
    return bound;
}

int __ifunc_runtime_init(const void *source_args, size_t n, void *payload, size_t *payload_size)
{
    net_buf here, **volatile place = &net, *volatile outer = *place;
    int status;
    if (NET_SET(here)) {
        *place = outer;
        return -1;
    }
    *place = &here;
    status = __ifunc_inner_init(source_args, n, payload, payload_size);
    *place = outer;
    return status;
}
