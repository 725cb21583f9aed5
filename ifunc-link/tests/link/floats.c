//#ExpectImports:
//#Libgcc: yes
//#Covers: R_X86_64_PC32 | mov xmm, [rip] | image | distance
//#SetsFloatControl: x86-64
// Floating-point constants, vectors, 128-bit integers from the compiler's library. `long double` becomes an integer by another
// rounding of the x87.
#include "ifunc.h"
static NOINLINE double poly(double x) { return 1.5 + x * (0.25 - x * (3.125e-3 + x * 7.0)); }
static NOINLINE __uint128_t divide(__uint128_t a, __uint128_t b) { return a / b + a % b; }
ENTRY(floats)
{
    union { double d; uint64_t u; } bits = {poly(payload[0] / 3.0)};
    long double extended = payload[1] * 1.25L;
    float array[16];
    __uint128_t big = ((__uint128_t)payload[2] << 100) + n;
    out[0] = bits.u;
    out[1] = (uint64_t)(extended * 1000);
    for (int i = 0; i < 16; i++)
        array[i] = i * 0.5f + payload[i];
    for (int i = 0; i < 16; i++)
        out[2] += (uint64_t)(array[i] * 4);
    big = divide(big, (__uint128_t)payload[3] * payload[3] + 3);
    out[3] = (uint64_t)big;
    out[4] = (uint64_t)(big >> 64);
    return 0;
}
