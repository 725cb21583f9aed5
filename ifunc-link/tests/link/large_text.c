//#Machines: aarch64
//#ExpectImports: host_add host_mul host_table
//#ExpectImportRelocations: yes
//#Configs: -O2
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | import | GOT entry
//#Covers: R_AARCH64_LD64_GOT_LO12_NC | ldr, str | import | GOT entry
//#Covers: R_AARCH64_CALL26 | bl | import | thunk
//#Covers: R_AARCH64_ADR_PREL_PG_HI21 | adrp | image | distance
// More text than a literal load reaches: code loads addresses of imports from the image, and `adrp` needs its page.
#include "ifunc.h"
__asm__(".section .text.large,\"ax\",@progbits\n.globl large\n.type large,%function\n"
        "large: b 1f\n.space 3 << 20\n1: b host_mul\n.size large,.-large\n.text\n");
uint64_t large(uint64_t, uint64_t);
static uint64_t (*volatile table[2])(uint64_t, uint64_t) = {host_add, large};
static uint64_t counters[3] = {5, 6, 7};
ENTRY(large_text)
{
    out[0] = large(n, 3) + host_add(n, 1);
    out[1] = table[payload[0] % 2](n, 2);
    out[2] = host_table[n % 8];
    uint64_t (*volatile same)(uint64_t, uint64_t) = host_add;
    out[3] = same == table[0];
    counters[n % 3]++;
    out[4] = counters[0] + counters[1] + counters[2];
    return 0;
}
