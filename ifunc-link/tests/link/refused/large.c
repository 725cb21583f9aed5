//#Machines: x86-64
//#Flags: -mcmodel=large
#include "../ifunc.h"
ENTRY(large) { return (uint32_t)host_add(n, host_counter); }
