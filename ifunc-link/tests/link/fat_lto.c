//#Flags: -flto -ffat-lto-objects
//#Compilers: gcc
//#Configs: -O0 -O2 -Os
//#ExpectImports: host_add
// Machine code beside intermediate code.
#include "ifunc.h"
static NOINLINE uint64_t inner(uint64_t x) { return host_add(x, 2); }
ENTRY(fat_lto)
{
    out[0] = inner(n);
    return 0;
}
