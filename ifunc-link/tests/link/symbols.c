//#ExpectImports: host_add
// Symbols that are other symbols, that others may not see, that may be replaced, that have versions.
#include "ifunc.h"
uint64_t original(uint64_t x) { return host_add(x, 10); }
uint64_t other_name(uint64_t) __attribute__((alias("original")));
uint64_t weak_name(uint64_t) __attribute__((weak, alias("original")));
__attribute__((visibility("hidden"), noinline)) uint64_t hidden_one(uint64_t x) { return x + 20; }
__attribute__((visibility("internal"), noinline)) uint64_t internal_one(uint64_t x) { return x + 25; }
__attribute__((visibility("protected"), noinline)) uint64_t protected_one(uint64_t x) { return x + 30; }
__attribute__((visibility("hidden"))) uint64_t hidden_data = 40;
__attribute__((visibility("protected"))) uint64_t protected_data[2] = {50, 60};
uint64_t (*volatile through)(uint64_t) = protected_one;
__attribute__((noinline)) uint64_t versioned_2(uint64_t x) { return x + 70; }
#ifndef REFERENCE // A shared library would need a list of its versions.
__asm__(".symver versioned_2,versioned@@V2\n");
#endif
typedef uint64_t both(uint64_t);
static both *volatile pick[2] = {other_name, weak_name};
ENTRY(symbols)
{
    out[0] = other_name(n) + weak_name(payload[0]);
    out[1] = hidden_one(n) + protected_one(n) + internal_one(n);
    out[2] = hidden_data + protected_data[n % 2];
    out[3] = through(1) + (through == protected_one);
    out[4] = versioned_2(n);
    out[5] = pick[0] == pick[1];
    return 0;
}
