//#Flags: -fPIE
//#Compilers: clang
//#ExpectImports: host_add host_counter host_table
// Clang reaches what a program lacks through the GOT also here.
#include "ifunc.h"
static uint64_t own = 4;
ENTRY(pie_without_copies)
{
    out[0] = host_add(own, n) + host_counter + host_table[n % 8];
    return 0;
}
