//#Object: parts/comdat_b.c
//#ExpectImports:
// The same function in two COMDAT groups: one travels.
#include "ifunc.h"
__asm__(".section .text.shared_inline,\"axG\",@progbits,shared_inline,comdat\n"
        ".weak shared_inline\n.type shared_inline,@function\n"
        "shared_inline: lea 7(%rdi),%rax\nret\n.size shared_inline,.-shared_inline\n.text\n");
uint64_t shared_inline(uint64_t), other_user(uint64_t);
ENTRY(comdat)
{
    out[0] = shared_inline(n);
    out[1] = other_user(n);
    return 0;
}
