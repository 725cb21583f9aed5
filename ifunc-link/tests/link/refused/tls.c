#include "../ifunc.h"
static __thread uint64_t counter;
NOINLINE static uint64_t bump(void) { return ++*(volatile uint64_t *)&counter; }
ENTRY(tls) { return (uint32_t)(out[0] = bump()); }
