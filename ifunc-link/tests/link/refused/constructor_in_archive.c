//#Archive: parts/logger.c parts/unused.c
// The archive's member is needed, and with it comes what would have to run first.
#include "../ifunc.h"
uint64_t log_number(uint64_t);
ENTRY(constructor_in_archive) { return (uint32_t)log_number(n); }
