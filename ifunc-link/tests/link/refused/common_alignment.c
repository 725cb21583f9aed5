//#Flags: -fcommon
#include "../ifunc.h"
__attribute__((aligned(16384))) uint8_t block[16384];
static uint8_t other[8192] __attribute__((aligned(32768)));
NOINLINE static uint8_t look(size_t i) { return *(volatile uint8_t *)&other[i]; }
ENTRY(common_alignment) { return block[n] + look(n); }
