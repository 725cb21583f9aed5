//#Machines: x86-64
//#Flags: -mindirect-branch=thunk
//#Compilers: gcc
//#Configs: -O0 -O2 -Os
//#ExpectImports: host_add host_apply host_mul
// Indirect calls through functions that the compiler adds in groups of their own.
#include "ifunc.h"
static uint64_t (*volatile table[2])(uint64_t, uint64_t) = {host_add, host_mul};
static uint64_t half(uint64_t x) { return x / 2; }
ENTRY(retpoline)
{
    for (int i = 0; i < 4; i++)
        out[i] = table[payload[i] % 2](payload[i], n);
    out[4] = host_apply(half, n);
    return 0;
}
