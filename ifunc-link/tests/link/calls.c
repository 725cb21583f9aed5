//#ExpectImports: host_add host_apply host_many host_mul
//#ExpectFunctions: host_add
//#ExpectSlot: yes
//#Covers: R_X86_64_PC32 | call rel32 | image | distance by gcc
//#Covers: R_X86_64_PLT32 | call rel32 | image | distance by clang
//#Covers: R_X86_64_PLT32 | call rel32 | import | thunk
//#Covers: R_X86_64_PLT32 | jmp rel32 | import | thunk
//#Covers: R_X86_64_GOTPCREL | call *[rip] | import | thunk
//#Covers: R_X86_64_GOTPCRELX | call *[rip] | import | thunk
//#Covers: R_X86_64_GOTPCRELX | jmp *[rip] | import | thunk
//#Covers: R_AARCH64_CALL26 | bl | import | thunk
//#Covers: R_AARCH64_JUMP26 | b | import | thunk
//#Covers: R_AARCH64_CALL26 | bl | image | distance
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | import | slot by gcc
//#Covers: R_AARCH64_LD64_GOT_LO12_NC | ldr, str | import | slot by gcc
#include "ifunc.h"
static uint64_t twice(uint64_t x) { return host_add(x, x); }
/* A tail call. */
static NOINLINE uint64_t tail(uint64_t a, uint64_t b) { return host_mul(a + 1, b); }
ENTRY(calls)
{
    out[0] = host_add(payload[0], n);
    out[1] = tail(payload[1], 3);
    out[2] = host_many(1, 2, 3, 4, payload[2], 6, 7, 8.5);
    out[3] = host_apply(twice, payload[3]);
    if (n > 5 && host_add(payload[4], 1) > 100)
        out[4] = host_mul(n, n);
    return 0;
}
