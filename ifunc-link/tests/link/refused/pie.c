//#Machines: x86-64
//#Flags: -fPIE
//#Compilers: gcc
#include "../ifunc.h"
ENTRY(pie) { return (uint32_t)host_counter; }
