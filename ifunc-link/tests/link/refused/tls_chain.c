// Three functions and a table lie between the entry and what is refused.
#include "../ifunc.h"
static __thread volatile uint64_t local;
NOINLINE static uint64_t inner(uint64_t x) { return local += x; }
NOINLINE static uint64_t middle(uint64_t x) { return inner(x) + 1; }
static uint64_t (*volatile const table[2])(uint64_t) = {middle, middle};
NOINLINE static uint64_t outer(uint64_t x) { return table[x % 2](x) + 1; }
ENTRY(tls_chain) { return (uint32_t)outer(n); }
