#include "../ifunc.h"
static uint64_t plain(uint64_t x) { return x; }
static void *choose(void) { return (void *)plain; }
uint64_t dispatched(uint64_t) __attribute__((ifunc("choose")));
ENTRY(gnu_ifunc) { return (uint32_t)dispatched(n); }
