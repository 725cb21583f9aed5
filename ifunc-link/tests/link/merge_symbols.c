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
// As compilers do it where the source chooses the section. A comment hides what they write behind its name.
#ifdef __aarch64__
#define NAMED __attribute__((section(".rodata.named.cst16,\"aM\",@progbits,16//")))
#else
#define NAMED __attribute__((section(".rodata.named.cst16,\"aM\",@progbits,16#")))
#endif
#endif
#ifdef __aarch64__
#define AT(s) "adrp x1," s "\nadd x1,x1,:lo12:" s "\n"
#define MERGE                                                                                                          \
    AT("sized") "ldr x1,[x1,#16]\nstr x1,[x0]\n"                                                                       \
    "adrp x1,bare+16\nldr x1,[x1,:lo12:bare+16]\nstr x1,[x0,#8]\n"                                                     \
    "adrp x1,bare-16\nldr x1,[x1,:lo12:bare-16]\nstr x1,[x0,#16]\n"                                                    \
    "adrp x1,second-2\nldrb w1,[x1,:lo12:second-2]\nstr x1,[x0,#24]\n"                                                 \
    "adrp x1,behind+2\nldrb w1,[x1,:lo12:behind+2]\ncmp w1,#0x7a\ncset x1,eq\nstr x1,[x0,#32]\n"                      \
    AT("place") "ldr x1,[x1]\nldr x1,[x1]\nstr x1,[x0,#40]\n"
#else
#define MERGE                                                                                                          \
    "lea sized(%rip),%rax\nmov 16(%rax),%rax\nmov %rax,(%rdi)\n"                                                       \
    "mov bare+16(%rip),%rax\nmov %rax,8(%rdi)\n"                                                                       \
    "mov bare-16(%rip),%rax\nmov %rax,16(%rdi)\n"                                                                      \
    "movzbl second-2(%rip),%eax\nmov %rax,24(%rdi)\n"                                                                  \
    "xor %eax,%eax\ncmpb $0x7a,behind+2(%rip)\nsete %al\nmov %rax,32(%rdi)\n"                                          \
    "mov place(%rip),%rax\nmov (%rax),%rax\nmov %rax,40(%rdi)\n"
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
        "merge: " MERGE "ret\n.size merge,.-merge\n.text\n");
NAMED const uint64_t named[4] = {11, 12, 13, 14};
void merge(uint64_t *out);
ENTRY(merge_symbols)
{
    merge(out);
    for (unsigned i = 0; i < 4; i++)
        out[6 + i] = named[(i + payload[0]) & 3];
    return 0;
}
