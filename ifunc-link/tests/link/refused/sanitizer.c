//#Flags: -fsanitize=address
//#Compilers: clang
#include "../ifunc.h"
static volatile uint64_t table[4];
ENTRY(sanitizer) { return (uint32_t)table[n % 4]; }
