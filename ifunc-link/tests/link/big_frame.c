//#ExpectImports:
#include "ifunc.h"
ENTRY(big_frame)
{
    volatile uint8_t frame[72 * 1024];
    for (size_t i = 0; i < sizeof frame; i += 64)
        frame[i] = (uint8_t)(i + n);
    for (size_t i = 0; i < sizeof frame; i += 64)
        out[0] += frame[i];
    return 0;
}
