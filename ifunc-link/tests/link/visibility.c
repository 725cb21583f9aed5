//#Flags: -fvisibility=hidden -fno-semantic-interposition
//#ExpectImports: host_add host_counter
// Definitions are hidden, declarations are not.
#include "ifunc.h"
uint64_t total = 6;
NOINLINE uint64_t step(uint64_t x) { return host_add(x, total); }
__attribute__((visibility("default"))) ENTRY(visibility)
{
    out[0] = step(n) + host_counter;
    return 0;
}
