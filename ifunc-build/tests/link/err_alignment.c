//#ExpectError: alignment beyond a page
#include "ifunc.h"
static volatile uint8_t page[8192] __attribute__((aligned(8192)));
ENTRY(err_alignment) { return page[n % 8192]; }
