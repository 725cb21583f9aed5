//#ExpectImports: host_add
// The other ifunc of the file needs what an image cannot have; it is none of this one's business.
#include "ifunc.h"
static __thread uint64_t local;
uint64_t not_there(uint64_t);
ENTRY(another)
{
    local += n;
    out[0] = local + not_there(payload[0]);
    return 0;
}
ENTRY(two_ifuncs)
{
    out[0] = host_add(payload[0], 1);
    return 0;
}
