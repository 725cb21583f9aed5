// Every reason is shown, with all its referrers.
#include "../ifunc.h"
static __thread volatile uint64_t local;
static uint64_t plain(uint64_t x) { return x; }
static void *choose(void) { return (void *)plain; }
uint64_t dispatched(uint64_t) __attribute__((ifunc("choose")));
static volatile int ready;
__attribute__((constructor)) void early(void) { ready = 1; }
NOINLINE static uint64_t first(void) { return dispatched(local); }
NOINLINE static uint64_t second(void) { return ++local; }
ENTRY(several) { return (uint32_t)(first() + second()); }
