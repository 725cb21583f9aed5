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
//#Covers: R_AARCH64_CALL26 | bl | image | distance
//#Covers: R_AARCH64_JUMP26 | b | import | thunk
//#Covers: R_AARCH64_JUMP26 | b | image | distance
//#Covers: R_AARCH64_CONDBR19 | b.cond | import | thunk
//#Covers: R_AARCH64_CONDBR19 | cbz | image | distance
//#Covers: R_AARCH64_CONDBR19 | cbz | import | thunk
//#Covers: R_AARCH64_TSTBR14 | tbz | image | distance
//#Covers: R_AARCH64_TSTBR14 | tbz | import | thunk
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | image | distance
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | import | slot
//#Covers: R_AARCH64_LD64_GOT_LO12_NC | ldr, str | image | distance
//#Covers: R_AARCH64_LD64_GOT_LO12_NC | ldr, str | import | slot
// Branches in every direction: conditional tail calls, through the GOT to a function of one's own, to an import.
#include "ifunc.h"
#ifdef __aarch64__
#ifdef REFERENCE // ordinary linkers make no thunks for conditional branches
#define NEAR(s) "near_" s
#else
#define NEAR(s) s
#endif
__asm__(".section .text.far,\"ax\",@progbits\n.globl far\n.type far,%function\n"
        "far: add x0,x0,x1\nadd x0,x0,#3\nret\n.size far,.-far\n"
        ".section .text.branches,\"ax\",@progbits\n.type branches,%function\n"
        "branches: stp x29,x30,[sp,#-32]!\nstr x19,[sp,#16]\nmov x19,x0\n"
        "bl far\nadd x19,x19,x0\n"
        "mov x0,#5\nmov x1,#6\nadrp x8,:got:far\nldr x9,[x8,:got_lo12:far]\nblr x9\nadd x19,x19,x0\n"
        "mov x0,x19\nmov x1,#7\nbl tail_conditional\nmov x19,x0\n"
        "mov x0,x19\nmov x1,#2\nbl tail_got\nmov x19,x0\n"
        "mov x0,x19\nmov x1,#3\nbl tail_own\nmov x19,x0\n"
        // The halves of two addresses, in an order that no assembler would choose.
        "adrp x10,:got:host_add\nadrp x11,:got:host_mul\nldr x11,[x11,:got_lo12:host_mul]\nmov x12,x10\n"
        "ldr x10,[x12,:got_lo12:host_add]\nmov x1,#9\nstr x11,[sp,#24]\nblr x10\n"
        "mov x1,#2\nldr x11,[sp,#24]\nblr x11\n"
        "ldr x19,[sp,#16]\nldp x29,x30,[sp],#32\nret\n.size branches,.-branches\n"
        ".type tail_conditional,%function\n"
        "tail_conditional: tst x0,#1\nb.ne " NEAR("host_add") "\ncbz x1,far\ntbz x0,#1,far_by\nb host_mul\n"
        ".size tail_conditional,.-tail_conditional\n"
        ".type tail_got,%function\ntail_got: adrp x16,:got:host_add\nldr x16,[x16,:got_lo12:host_add]\nbr x16\n"
        ".size tail_got,.-tail_got\n"
        ".type tail_own,%function\ntail_own: cbnz x1,1f\ncbz x0," NEAR("host_mul") "\nb far\n1: tbnz x1,#40," NEAR("host_mul") "\nb far\n"
        ".size tail_own,.-tail_own\n"
        "near_host_add: b host_add\nnear_host_mul: b host_mul\n"
        ".section .text.far_by,\"ax\",@progbits\n.globl far_by\n.type far_by,%function\n"
        "far_by: sub x0,x0,x1\nret\n.size far_by,.-far_by\n.text\n");
#else
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
#endif
uint64_t branches(uint64_t, uint64_t);
ENTRY(branches)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = branches(payload[i], n);
    return 0;
}
