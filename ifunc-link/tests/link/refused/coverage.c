//#Flags: --coverage
//#Compilers: gcc
#include "../ifunc.h"
ENTRY(coverage) { return (uint32_t)n; }
