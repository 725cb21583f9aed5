//#ExpectImports:
// Nothing, in every kind of section: each has an address of its own.
#include "ifunc.h"
static struct { } empty;
uint8_t none[0];
const uint8_t none_constant[0];
uint8_t none_data[0] __attribute__((section(".data.none")));
void *volatile held = none;
ENTRY(zero_size)
{
    const void *volatile all[] = {&empty, none, none_constant, none_data};
    for (int i = 0; i < 4; i++)
        out[i] = all[i] != 0;
    out[4] = held == (void *)none;
    return 0;
}
