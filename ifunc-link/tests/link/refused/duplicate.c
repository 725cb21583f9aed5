//#Object: parts/duplicate_b.c
#include "../ifunc.h"
uint64_t twice(uint64_t x) { return x; }
uint64_t unreached(uint64_t x) { return x; }
uint64_t caller(uint64_t);
ENTRY(duplicate) { return (uint32_t)caller(n); }
