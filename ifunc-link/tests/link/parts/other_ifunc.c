#include "../ifunc.h"
static __thread volatile uint64_t calls;
NOINLINE static uint64_t count(void) { return ++calls; }
uint64_t shared_helper(uint64_t x) { return x * count(); }
uint64_t not_asked_for(uint64_t x) { return x; }
