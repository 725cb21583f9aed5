//#ExpectError: image too large
#include "ifunc.h"
static volatile uint8_t huge[0x7fffffff];
ENTRY(err_too_large) { return huge[n]; }
