//#ExpectWeak: absent_function absent_data
//#ExpectImports: absent_data absent_function host_add
//#Covers: R_X86_64_GOTPCREL | cmp [rip], imm | import | GOT entry
// What may be missing is asked for by its address.
#include "ifunc.h"
__attribute__((weak)) uint64_t absent_function(uint64_t);
extern __attribute__((weak)) uint64_t absent_data;
__attribute__((weak)) uint64_t host_add(uint64_t, uint64_t);
__attribute__((weak)) uint64_t own_weak(uint64_t x) { return x + 5; }
static uint64_t (*volatile held)(uint64_t) = absent_function;
ENTRY(weak)
{
    out[0] = absent_function ? absent_function(1) : 2;
    out[1] = &absent_data ? absent_data : 3;
    out[2] = host_add ? host_add(payload[0], 4) : 0;
    out[3] = own_weak(n);
    out[4] = held == 0;
    return 0;
}
