//#ExpectImports: host_add host_mul
//#Covers: R_X86_64_PLT32 | jcc rel32 | import | thunk by gcc
//#Covers: R_X86_64_PLT32 | jmp rel32 | import | thunk
//#Covers: R_X86_64_PLT32 | jmp rel32 | image | distance
//#Covers: R_X86_64_PLT32 | call rel32 | image | distance
//#Covers: R_X86_64_GOTPCRELX | jmp *[rip] | image | distance
//#Covers: R_X86_64_GOTPCRELX | call *[rip] | image | distance
//#Covers: R_X86_64_GOTPCRELX | jmp *[rip] | import | thunk
//#Covers: R_X86_64_PLT32 | jcc rel32 | image | distance
//#Covers: R_X86_64_GOTPCREL | jmp *[rip] | image | distance
//#Covers: R_X86_64_GOTPCREL | jmp *[rip] | import | thunk
// Branches in every direction: conditional tail calls, through the GOT to a function of one's own, to an import.
#include "ifunc.h"
__asm__(".section .text.far,\"ax\",@progbits\n.globl far\n.type far,@function\n"
        "far: lea 3(%rdi,%rsi),%rax\nret\n.size far,.-far\n"
        ".section .text.branches,\"ax\",@progbits\n.type branches,@function\n"
        "branches: push %rbx\nmov %rdi,%rbx\n"
        "call far@PLT\nadd %rax,%rbx\n"
        "mov $5,%edi\nmov $6,%esi\ncall *far@GOTPCREL(%rip)\nadd %rax,%rbx\n"
        "mov %rbx,%rdi\nmov $7,%esi\ncall tail_conditional\nmov %rax,%rbx\n"
        "mov %rbx,%rdi\nmov $2,%esi\ncall tail_got\nmov %rax,%rbx\n"
        "mov %rbx,%rdi\nmov $3,%esi\ncall tail_own\n"
        "pop %rbx\nret\n.size branches,.-branches\n"
        ".type tail_conditional,@function\n"
        "tail_conditional: test $1,%dil\njne host_add@PLT\njae near_by\nud2\n"
        "near_by: js far@PLT\njmp host_mul@PLT\n.size tail_conditional,.-tail_conditional\n"
        ".type tail_got,@function\ntail_got: jmp *host_add@GOTPCREL(%rip)\n.size tail_got,.-tail_got\n"
        ".type tail_own,@function\n"
        "tail_own: cmp $4,%rsi\nje 1f\njmp far@PLT\n1: jmp *far@GOTPCREL(%rip)\n.size tail_own,.-tail_own\n.text\n");
uint64_t branches(uint64_t, uint64_t);
ENTRY(branches)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = branches(payload[i], n);
    return 0;
}
