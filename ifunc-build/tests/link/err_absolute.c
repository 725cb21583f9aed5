//#Object: parts/absolute.c
//#ExpectError: absolute symbol: `fixed`
#include "ifunc.h"
extern uint8_t fixed[];
ENTRY(err_absolute) { return (uint32_t)(uintptr_t)fixed; }
