#include "../ifunc.h"
static volatile uint8_t page[8192] __attribute__((aligned(8192)));
ENTRY(alignment) { return page[n % 8192]; }
