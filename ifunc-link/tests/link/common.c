//#Flags: -fcommon
//#Object: parts/common_b.c
//#ExpectImports:
//#ExpectRw: yes
// Tentative definitions: the largest counts, a definition wins over all of them.
#include "ifunc.h"
uint64_t tentative;
uint64_t shared_array[2];
uint64_t defined_elsewhere;
void other_file(void);
ENTRY(common)
{
    tentative += n;
    shared_array[0]++;
    other_file();
    out[0] = tentative;
    out[1] = shared_array[0];
    out[2] = defined_elsewhere;
    return 0;
}
