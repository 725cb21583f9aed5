//#ExpectImports:
//#ExpectRw: no
//#Covers: R_X86_64_PC32 | data | image | distance
// Jump tables and lookup tables are distances, not addresses.
#include "ifunc.h"
static NOINLINE uint64_t pick(uint8_t k, uint64_t x)
{
    switch (k % 13) {
    case 0: return x * 3;
    case 1: return x ^ 0x5555;
    case 2: return x << 3 | 1;
    case 3: return x - 17;
    case 4: return ~x;
    case 5: return x / 7;
    case 6: return x % 11;
    case 7: return x >> 2;
    case 8: return x * x;
    case 9: return 42;
    case 10: return x + k;
    default: return k;
    }
}
static NOINLINE const char *word(int k)
{
    static const char words[][6] = {"zero", "one", "two", "three", "four"};
    switch (k % 7) {
    case 5: return "five";
    case 6: return "six";
    default: return words[k % 7];
    }
}
ENTRY(jump_table)
{
    for (size_t i = 0; i < n && i < 32; i++)
        out[i] = pick(payload[i], i + 1000) + (uint64_t)word(payload[i])[1];
    return 0;
}
