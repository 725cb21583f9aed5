//#Object: parts/duplicate.c
//#ExpectError: symbol that is defined twice: `twice`
//#ExpectError: remove one of them
//#ExpectError: 1 reason
#include "ifunc.h"
uint64_t twice(uint64_t x) { return x; }
uint64_t unreached(uint64_t x) { return x; }
uint64_t caller(uint64_t);
ENTRY(err_duplicate) { return (uint32_t)caller(n); }
