//#Object: parts/absolute_b.c
#include "../ifunc.h"
extern uint8_t fixed[];
ENTRY(absolute) { return (uint32_t)(uintptr_t)fixed; }
