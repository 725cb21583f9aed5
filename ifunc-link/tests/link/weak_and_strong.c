//#Object: parts/strong.c
//#Archive: parts/archived.c parts/unused.c
//#ExpectImports:
// Strong before weak among objects; an object's weak definition before an archive's strong one.
#include "ifunc.h"
__attribute__((weak, noinline)) uint64_t overridden(void) { return 1; }
__attribute__((weak, noinline)) uint64_t kept(void) { return 2; }
uint64_t only_in_archive(uint64_t);
ENTRY(weak_and_strong)
{
    out[0] = overridden();
    out[1] = kept();
    out[2] = only_in_archive(n);
    return 0;
}
