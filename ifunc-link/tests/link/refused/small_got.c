//#Machines: aarch64
//#Compilers: gcc
//#Flags: -fpic
#include "../ifunc.h"
ENTRY(small_got) { return (uint32_t)(host_table[n % 8] + host_counter); }
