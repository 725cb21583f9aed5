//#ExpectImports:
// The read-write part holds nothing else.
#include "ifunc.h"
uint8_t none_data[0] __attribute__((section(".data.none")));
uint8_t none[0];
uint8_t *const held[2] = {none_data, none};
ENTRY(zero_size_alone)
{
    uint8_t *const volatile *p = held;
    uint8_t *volatile q[] = {none_data, none};
    out[0] = p[n & 1] != 0 && q[n & 1] == p[n & 1];
    return 0;
}
