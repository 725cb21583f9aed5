//#Machines: x86-64
//#Flags: -fno-pic -fno-pie
//#Configs: -O0 -O2
#include "../ifunc.h"
static uint64_t table[4] = {1, 2, 3, 4};
ENTRY(no_pic) { return (uint32_t)table[payload[0] % 4]; }
