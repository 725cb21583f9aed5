#include "../ifunc.h"
static volatile uint8_t huge[0x7fffffff];
ENTRY(too_large) { return huge[n]; }
