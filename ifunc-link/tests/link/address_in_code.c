//#Machines: x86-64
//#ExpectImports: host_counter
//#ExpectImportRelocations: yes
//#Covers: R_X86_64_64 | address | import | install relocation
//#Covers: R_X86_64_64 | address | image | install relocation
// Whole addresses in instructions and between them.
#include "ifunc.h"
uint64_t beside = 31;
__asm__(".section .text.in_code,\"ax\",@progbits\n.type in_code,@function\n"
        "in_code: movabs $beside,%rax\nmov (%rax),%rax\n"
        "movabs $host_counter,%rdx\nadd (%rdx),%rax\n"
        "mov 1f(%rip),%rdx\nadd (%rdx),%rax\nret\n.balign 8\n1: .quad beside\n.size in_code,.-in_code\n.text\n");
uint64_t in_code(void);
ENTRY(address_in_code)
{
    beside += n;
    out[0] = in_code();
    beside -= n;
    return 0;
}
