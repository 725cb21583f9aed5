//#ExpectImports:
//#ExpectRelocationsAtLeast: 3
// Label tables are the one kind of jump table that holds addresses.
#include "ifunc.h"
static NOINLINE uint64_t interpret(const uint8_t *code, size_t n)
{
    static const void *const ops[] = {&&inc, &&dbl, &&neg};
    uint64_t x = 1;
    size_t at = 0;
next:
    if (at == n)
        return x;
    goto *ops[code[at++] % 3];
inc:
    x++;
    goto next;
dbl:
    x *= 2;
    goto next;
neg:
    x = -x;
    goto next;
}
ENTRY(computed_goto)
{
    out[0] = interpret(payload, n);
    return 0;
}
