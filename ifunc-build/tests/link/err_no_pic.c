//#Flags: -fno-pic -fno-pie
//#Configs: -O0 -O2
//#ExpectError: not position-independent
//#ExpectError: compile with `-fPIC`
#include "ifunc.h"
static uint64_t table[4] = {1, 2, 3, 4};
ENTRY(err_no_pic) { return (uint32_t)table[payload[0] % 4]; }
