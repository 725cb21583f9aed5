//#ExpectImports: host_add host_apply host_mul labs
//#Covers: R_X86_64_64 | data | image | install relocation
// Functions have one address, wherever it is taken, inside the image and as the target sees it.
#include "ifunc.h"
#include <stdlib.h>
static NOINLINE uint64_t inside(uint64_t x) { return x + 1; }
uint64_t global_function(uint64_t x) { return x + 2; }
static uint64_t (*volatile table[2])(uint64_t, uint64_t) = {host_add, host_mul};
static uint64_t (*volatile mine)(uint64_t) = inside;
static uint64_t same_as_ours(uint64_t f) { return f == (uint64_t)(uintptr_t)inside; }
static uint64_t call_through(uint64_t f) { return ((uint64_t(*)(uint64_t))(uintptr_t)f)(40); }
ENTRY(pointers)
{
    long (*volatile f)(long) = labs;
    uint64_t (*volatile g)(uint64_t, uint64_t) = host_add;
    out[0] = f == labs;
    out[1] = (uint64_t)f(-(long)payload[0]);
    out[2] = g == table[0];
    out[3] = table[1](payload[1], 7);
    out[4] = mine == inside;
    out[5] = host_apply(same_as_ours, (uint64_t)(uintptr_t)mine);
    out[6] = host_apply(call_through, (uint64_t)(uintptr_t)global_function);
    out[7] = host_apply(mine, n);
    return 0;
}
