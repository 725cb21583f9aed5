//#Machines: x86-64
//#Libgcc: yes
//#ExpectImports: host_counter host_table
//#Covers: R_X86_64_GOTPCREL | vector [rip] | import | GOT entry
// The same with VEX prefixes, an immediate behind the displacement among them.
#include "ifunc.h"
__asm__(".section .text.vectors,\"ax\",@progbits\n.type vectors,@function\n"
        "vectors: vmovq host_table@GOTPCREL(%rip),%xmm8\n"
        "vpinsrq $1,host_counter@GOTPCREL(%rip),%xmm8,%xmm9\n"
        "vmovq %xmm9,%rax\nvpextrq $1,%xmm9,%rdx\n"
        "mov 16(%rax),%rax\nadd (%rdx),%rax\nvzeroupper\nret\n.size vectors,.-vectors\n.text\n");
uint64_t vectors(void);
ENTRY(vector_operands)
{
    __builtin_cpu_init();
    out[0] = __builtin_cpu_supports("avx") ? vectors() : host_table[2] + host_counter;
    return 0;
}
