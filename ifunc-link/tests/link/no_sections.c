//#Flags: -fno-function-sections -fno-data-sections
//#ExpectImport: host_add
// One section for all functions: everything in it travels.
#include "ifunc.h"
static uint64_t state[4] = {1, 2, 3, 4};
static NOINLINE uint64_t step(uint64_t i) { return state[i % 4]++; }
uint64_t never_called(uint64_t x) { return x; }
ENTRY(no_sections)
{
    for (size_t i = 0; i < n; i++)
        out[0] = host_add(out[0], step(payload[i]));
    return 0;
}
