//#Archive: parts/weak_member.c parts/weak_unasked.c
//#ExpectImports: unasked
//#ExpectWeak: unasked
// A weak reference is bound to a member that is there for other reasons, and asks for none.
#include "ifunc.h"
uint64_t asked(uint64_t);
__attribute__((weak)) uint64_t beside(uint64_t), unasked(uint64_t);
ENTRY(weak_archive)
{
    out[0] = asked(n);
    out[1] = beside ? beside(n) : 1000;
    out[2] = unasked ? unasked(n) : 1000;
    return 0;
}
