//#Object: parts/constructor_b.c
// Nothing of the other file is reached, and yet it is what fills the table.
#include "../ifunc.h"
uint64_t table[4];
ENTRY(constructor_unreached) { return (uint32_t)table[1]; }
