//#Flags: -fcommon
//#Archive: parts/common_member.c
//#ExpectImports:
// A tentative definition yields to a definition in an archive.
#include "ifunc.h"
uint64_t settled;
ENTRY(common_archive)
{
    out[0] = settled;
    settled += n;
    out[1] = settled;
    settled = 42;
    return 0;
}
