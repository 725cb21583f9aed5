//#Machines: x86-64
//#Flags: -mcmodel=kernel -fno-pic
#include "../ifunc.h"
static volatile uint64_t table[4];
ENTRY(kernel_model) { return (uint32_t)table[n % 4]; }
