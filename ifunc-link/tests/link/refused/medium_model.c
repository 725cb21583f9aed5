//#Machines: x86-64
//#Flags: -mcmodel=medium
#include "../ifunc.h"
static volatile uint64_t table[100000];
ENTRY(medium_model) { return (uint32_t)table[n % 100000]; }
