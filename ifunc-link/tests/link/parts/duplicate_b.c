#include "../ifunc.h"
NOINLINE uint64_t twice(uint64_t x) { return x * 2; }
uint64_t unreached(uint64_t x) { return x * 2; }
uint64_t caller(uint64_t x) { return twice(x); }
