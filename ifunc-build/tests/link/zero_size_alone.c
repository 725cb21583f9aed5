//#ExpectImports:
// The read-write part holds nothing else.
#include "ifunc.h"
uint8_t none[0];
ENTRY(zero_size_alone)
{
    uint8_t *volatile p = none;
    out[0] = p != 0;
    return 0;
}
