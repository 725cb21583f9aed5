//#Object: parts/comdat_b.c
//#ExpectImports:
// The same function in two COMDAT groups: one travels.
#include "ifunc.h"
#include "parts/plus.h"
__asm__(".section .text.shared_inline,\"axG\",@progbits,shared_inline,comdat\n"
        ".weak shared_inline\n.type shared_inline,@function\n"
        "shared_inline: " PLUS("7") "\nret\n.size shared_inline,.-shared_inline\n.text\n");
// A group of global functions, as GCC makes them for `-mindirect-branch`: no definition too many either.
__asm__(".section .text.shared_strong,\"axG\",@progbits,shared_strong,comdat\n"
        ".globl shared_strong\n.type shared_strong,@function\n"
        "shared_strong: " PLUS("9") "\nret\n.size shared_strong,.-shared_strong\n.text\n");
uint64_t shared_strong(uint64_t), shared_inline(uint64_t), other_user(uint64_t);
ENTRY(comdat)
{
    out[0] = shared_inline(n);
    out[1] = other_user(n);
    out[2] = shared_strong(n);
    return 0;
}
