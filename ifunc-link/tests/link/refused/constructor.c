#include "../ifunc.h"
static volatile uint64_t ready;
__attribute__((constructor, used)) static void early(void) { ready = 1; }
__attribute__((destructor)) void late(void) { ready = 0; }
ENTRY(constructor) { return (uint32_t)ready; }
