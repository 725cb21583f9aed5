//#ExpectImports:
// Who asks for no version gets the default one.
#include "ifunc.h"
#ifdef REFERENCE
uint64_t versioned(uint64_t x) { return x + 5; }
#else
uint64_t versioned_1(uint64_t x) { return x + 5; }
__asm__(".symver versioned_1, versioned@@V1");
uint64_t versioned(uint64_t);
#endif
ENTRY(default_version)
{
    out[0] = versioned(n);
    return 0;
}
