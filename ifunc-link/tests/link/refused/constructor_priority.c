#include "../ifunc.h"
static volatile uint64_t ready;
__attribute__((constructor(101))) static void before_all(void) { ready = 1; }
ENTRY(constructor_priority) { return (uint32_t)ready; }
