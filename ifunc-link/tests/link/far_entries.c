//#Machines: aarch64
//#ExpectImport: host_add
//#Configs: -O0 -O2
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | import | slot
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | import | GOT entry
//#Covers: R_AARCH64_LD64_GOT_LO12_NC | ldr, str | import | GOT entry
//#Covers: R_AARCH64_CALL26 | bl | import | thunk
// More imports than one load reaches in the target's GOT. Most are weak, and not there.
#include "ifunc.h"
// Written in assembly: compilers take ten seconds for as many in C.
__asm__(
    ".altmacro\n"
    ".macro absent number\n"
    "    .weak absent_\\number\n"
    "    adrp x9, :got:absent_\\number\n"
    "    ldr x9, [x9, :got_lo12:absent_\\number]\n"
    "    cmp x9, #0\n"
    "    cinc x0, x0, ne\n"
    ".endm\n"
    ".pushsection .text\n"
    ".balign 4\n"
    ".type count, %function\n"
    "count:\n"
    "    mov x0, #0\n"
    "    .set next, 0\n"
    "    .rept 4100\n"
    "    absent %next\n"
    "    .set next, next + 1\n"
    "    .endr\n"
    "    ret\n"
    ".size count, . - count\n"
    ".popsection\n"
    ".noaltmacro\n");
uint64_t count(void) __attribute__((visibility("hidden")));
static NOINLINE uint64_t later(uint64_t n)
{
    uint64_t (*volatile same)(uint64_t, uint64_t) = host_add;
    return host_add(n, 1) + host_mul(n, 3) + host_table[n % 8] + same(n, 2) + (same == host_add);
}
ENTRY(far_entries)
{
    out[0] = count();
    out[1] = later(n);
    return 0;
}
