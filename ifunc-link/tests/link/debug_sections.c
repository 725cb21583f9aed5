//#Flags: -g3 -gz -fdebug-types-section
//#ExpectImports: host_add
//#MaxBytes: 900
// Debug sections of all kinds, compressed: none of them travels.
#include "ifunc.h"
struct pair { uint64_t a, b; };
enum choice { NONE, SOME };
static NOINLINE struct pair make(uint64_t x, enum choice c) { return (struct pair){x, c == SOME ? host_add(x, 1) : 0}; }
ENTRY(debug_sections)
{
    struct pair p = make(n, payload[0] % 2 ? SOME : NONE);
    out[0] = p.a * 2 + p.b;
    return 0;
}
