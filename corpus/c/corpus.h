/* Included by every source: the target's data, functions that record results, and the functions around an ifunc's entry. */
#ifndef CORPUS_H
#define CORPUS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NOTES 16384

/* `World` of the package `corpus-case`. */
struct world {
    uint64_t seed;
    uint64_t calls;
    uint64_t written;
    uint8_t notes[NOTES];
};

#define UNUSED __attribute__((unused))
#define NOINLINE __attribute__((noinline))

/* Bytes that do not fit are counted but not written. */
UNUSED static void put_bytes(struct world *w, const void *bytes, size_t n)
{
    if (w->written + n <= NOTES)
        memcpy(w->notes + w->written, bytes, n);
    w->written += n;
}

UNUSED static void put(struct world *w, uint64_t value) { put_bytes(w, &value, sizeof value); }

/* Normalises NaNs: their bits are unspecified. */
UNUSED static void put_double(struct world *w, double value)
{
    if (value != value)
        put(w, 0x7ff8000000000000);
    else
        put_bytes(w, &value, sizeof value);
}

UNUSED static void put_text(struct world *w, const char *text) { put_bytes(w, text, strlen(text) + 1); }

/* The input as numbers; zeros pad the last one. */
UNUSED static size_t words(size_t n) { return (n + 7) / 8; }

UNUSED static uint64_t word(const uint8_t *in, size_t n, size_t index)
{
    uint64_t value = 0;
    size_t at = index * 8;

    if (at < n)
        memcpy(&value, in + at, n - at < 8 ? n - at : 8);
    return value;
}

/* The entry of an ifunc, and its payload functions in the current argument order. */
#define CASE(name)                                                                                                  \
    size_t name##_payload_bound(void *source_args, size_t n)                                                        \
    {                                                                                                               \
        (void)source_args;                                                                                          \
        return n;                                                                                                   \
    }                                                                                                               \
    int name##_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)                       \
    {                                                                                                               \
        memcpy(payload, source_args, n);                                                                            \
        *payload_size = n;                                                                                          \
        return 0;                                                                                                   \
    }                                                                                                               \
    void name##_main(const uint8_t *in, size_t n, struct world *w)

/* The same in the argument order of the first API. */
#define CASE_OF_OLD(name)                                                                                           \
    size_t name##_payload_get_max_size(void *source_args, size_t n)                                                 \
    {                                                                                                               \
        (void)source_args;                                                                                          \
        return n;                                                                                                   \
    }                                                                                                               \
    int name##_payload_init(void *payload, size_t payload_size, void *source_args, size_t n)                        \
    {                                                                                                               \
        if (payload_size < n)                                                                                       \
            return -1;                                                                                              \
        memcpy(payload, source_args, n);                                                                            \
        return 0;                                                                                                   \
    }                                                                                                               \
    void name##_main(const uint8_t *in, size_t n, struct world *w)

#endif
