//#Machines: aarch64
//#Compilers: gcc
//#Flags: -moutline-atomics
#include "../ifunc.h"
static uint64_t counter;
ENTRY(outline_atomics) { return (uint32_t)__atomic_fetch_add(&counter, n, __ATOMIC_SEQ_CST); }
