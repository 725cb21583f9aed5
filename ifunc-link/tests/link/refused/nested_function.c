//#Compilers: gcc
// GCC writes a trampoline on the stack for a nested function whose address is used.
#include "../ifunc.h"

void sort(uint32_t *values, size_t n, int (*before)(const uint32_t *, const uint32_t *));

ENTRY(nested_function)
{
    volatile const uint32_t *order = (const uint32_t *)out;

    int compare(const uint32_t *a, const uint32_t *b) { return order[*a] < order[*b]; }
    sort((uint32_t *)payload, n / sizeof(uint32_t), compare);
    return 0;
}
