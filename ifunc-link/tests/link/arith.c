//#ExpectImports:
//#ExpectRelocations: 0
//#ExpectSlot: no
//#ExpectRw: no
//#MaxBytes: 700
#include "ifunc.h"
static NOINLINE uint64_t mix(uint64_t x) { return (x ^ x >> 31) * 0x9e3779b97f4a7c15; }
ENTRY(arith)
{
    uint64_t h = n;
    for (size_t i = 0; i < n; i++)
        h = mix(h + payload[i]);
    out[0] = h;
    return 0;
}
