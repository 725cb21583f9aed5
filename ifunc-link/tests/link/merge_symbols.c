//#ExpectImports:
// Constants of which one symbol covers several, or that are reached from beside their own symbol: they stay together.
#include "ifunc.h"
#ifdef REFERENCE // ordinary linkers cut here as well
#define STRINGS "\"a\",@progbits"
#define CONSTANTS(size) "\"a\",@progbits"
#define NAMED
#else
#define STRINGS "\"aMS\",@progbits,1"
#define CONSTANTS(size) "\"aM\",@progbits," size
// As compilers do it where the source chooses the section.
#define NAMED __attribute__((section(".rodata.named.cst16,\"aM\",@progbits,16#")))
#endif
__asm__(".section .rodata.sized.cst16," CONSTANTS("16") "\n.p2align 4\n"
        ".type sized,@object\nsized: .octa 1\n.octa 2\n.size sized,32\n"
        ".section .rodata.bare.cst16," CONSTANTS("16") "\n.p2align 4\n"
        ".octa 3\nbare: .octa 4\n.octa 5\n"
        ".section .rodata.before.str," STRINGS "\n.asciz \"first\"\nsecond: .asciz \"second\"\n.asciz \"third\"\n"
        ".section .rodata.behind.str," STRINGS "\n.asciz \"x\"\nbehind: .asciz \"y\"\n.asciz \"z\"\n"
        ".section .rodata.address.cst8," CONSTANTS("8") "\n.p2align 3\naddressed: .quad 6\n.quad 7\n"
        ".section .data.rel.ro.merge,\"aw\",@progbits\n.balign 8\nplace: .quad addressed+8\n"
        ".section .text.merge,\"ax\",@progbits\n.type merge,@function\n"
        "merge: lea sized(%rip),%rax\nmov 16(%rax),%rax\nmov %rax,(%rdi)\n"
        "mov bare+16(%rip),%rax\nmov %rax,8(%rdi)\n"
        "mov bare-16(%rip),%rax\nmov %rax,16(%rdi)\n"
        "movzbl second-2(%rip),%eax\nmov %rax,24(%rdi)\n"
        "xor %eax,%eax\ncmpb $0x7a,behind+2(%rip)\nsete %al\nmov %rax,32(%rdi)\n"
        "mov place(%rip),%rax\nmov (%rax),%rax\nmov %rax,40(%rdi)\nret\n.size merge,.-merge\n.text\n");
NAMED const uint64_t named[4] = {11, 12, 13, 14};
void merge(uint64_t *out);
ENTRY(merge_symbols)
{
    merge(out);
    for (unsigned i = 0; i < 4; i++)
        out[6 + i] = named[(i + payload[0]) & 3];
    return 0;
}
