//#ExpectImports:
//#Libgcc: yes
//#SetsFloatControl: x86-64
//#Covers: R_X86_64_PC32 | other [rip] | image | distance
//#Covers: R_X86_64_PC32 | cmp [rip], imm | image | distance
//#Covers: R_X86_64_PC32 | mov [rip], r64 | image | distance
//#Covers: R_X86_64_PC32 | mov xmm, [rip] | image | distance
// Everything that takes data relative to the instruction: locked operations, x87, vectors, immediates behind.
#include "ifunc.h"
static uint64_t counter = 3;
static uint32_t word = 9;
static uint8_t flag = 1;
static double fraction = 1.5;
static long double extended = 2.25L;
static float four[4] __attribute__((aligned(16))) = {1, 2, 3, 4};
static volatile uint64_t *volatile keep = &counter;
ENTRY(memory_operands)
{
    uint64_t old = __atomic_fetch_add(&counter, n, __ATOMIC_SEQ_CST);
    uint64_t expected = old + n;
    int swapped = __atomic_compare_exchange_n(&counter, &expected, old + 1000, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    __atomic_fetch_or(&word, 0x100, __ATOMIC_SEQ_CST);
    if (flag == 1 && word > 5)
        word = 0x12345678;
    flag ^= 0x81;
    fraction *= payload[0];
    extended = extended * 2 + payload[1];
    for (int i = 0; i < 4; i++)
        four[i] += payload[i] * 0.5f;
    *keep += 1;
    out[0] = counter - old;
    out[1] = (uint64_t)swapped;
    out[2] = word;
    out[3] = flag;
    out[4] = (uint64_t)(fraction * 4);
    out[5] = (uint64_t)(extended * 4);
    out[6] = (uint64_t)((four[0] + four[1] + four[2] + four[3]) * 8);
    counter = 3, word = 9, flag = 1, fraction = 1.5, extended = 2.25L;
    for (int i = 0; i < 4; i++)
        four[i] = (float)i + 1;
    return 0;
}
