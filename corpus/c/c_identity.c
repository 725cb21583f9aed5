/* features: addresses of functions and data compared; weak functions of the host; conditional tail calls */
#include "corpus.h"
#include "host/host.h"
#include <stdlib.h>

extern uint64_t host_add(uint64_t, uint64_t) __attribute__((weak));

NOINLINE static uint64_t same(uint64_t a, uint64_t b) { return a - b; }

NOINLINE static uint64_t choose(int which, uint64_t a, uint64_t b)
{
    if (which == 0)
        return host_add(a, b);
    if (which == 1)
        return host_mul(b, a);
    return same(a, b);
}

NOINLINE static uint64_t even(uint64_t a, uint64_t b) { return a / (b | 1); }

/* Nothing but branches to other functions. */
NOINLINE static uint64_t ends(uint64_t a, uint64_t b)
{
    if (a & 1)
        return same(a, b);
    return even(a, b);
}

static uint64_t (*volatile held)(uint64_t, uint64_t) = host_mul;

CASE(c_identity)
{
    struct pair pair = {(uintptr_t)&host_table[5] - (uintptr_t)host_table, 0};
    const void *two[2] = {host_table, &host_counter};

    put(w, held == host_mul);
    put(w, (void (*)(void))held == (void (*)(void))abort);
    put(w, host_add != 0);
    put(w, two[n % 2] == (const void *)&host_counter);
    put(w, two[1] != two[0]);
    put(w, pair.a);
    host_counter = n;
    for (size_t i = 0; i < words(n) && i < 200; i++) {
        uint64_t value = word(in, n, i);
        const uint64_t *at = value % 3 ? &host_counter : host_table + value % 8;
        host_counter += *at;
        put(w, choose((int)(value % 3), value, host_counter));
        int inside = at >= host_table && at < host_table + 8;
        put(w, inside ? (uint64_t)(at - host_table) : 99);
        put(w, ends(value, host_counter));
    }
}
