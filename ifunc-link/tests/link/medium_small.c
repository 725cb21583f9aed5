//#Machines: x86-64
//#Flags: -mcmodel=medium
//#Compilers: gcc
//#Configs: -O1 -O2 -O3 -Os
//#ExpectImport: host_counter
// Small data of the medium model is reached as in the small model.
#include "ifunc.h"
static uint64_t small[4] = {1, 2, 3, 4};
ENTRY(medium_small)
{
    out[0] = small[n % 4] + host_counter;
    small[n % 4]++;
    out[1] = small[n % 4]--;
    return 0;
}
