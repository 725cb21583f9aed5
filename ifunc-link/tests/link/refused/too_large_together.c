// Neither is too large by itself.
#include "../ifunc.h"
static volatile uint8_t first[0x50000000], second[0x40000000];
ENTRY(too_large_together) { return first[n] + second[n]; }
