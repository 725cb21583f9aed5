//#Configs: -O1 -O2 -O3 -Os -Og
//#Flags: -fno-pic -fno-pie
#include "../ifunc.h"
static volatile const uint64_t *volatile where;
ENTRY(no_pic_import)
{
    where = &host_table[3];
    return (uint32_t)(host_counter + *where);
}
