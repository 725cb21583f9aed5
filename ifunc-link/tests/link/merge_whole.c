//#Machines: x86-64
//#ExpectImports:
//#ExpectRelocationsAtLeast: 1
// A mergeable section that code reaches by the section's own symbol stays whole: the addend counts bytes of the
// instruction too. One that only addresses refer to is cut.
#include "ifunc.h"
__asm__(".section .rodata.whole,\"aMS\",@progbits,1\n.asciz \"first\"\n.asciz \"second\"\n.asciz \"third\"\n"
        ".section .rodata.cut,\"aMS\",@progbits,1\n.asciz \"unused, and long enough to be missed\"\n.asciz \"used\"\n"
        ".section .data.rel.ro.table,\"aw\",@progbits\n.balign 8\ntable: .quad .rodata.cut+37\n"
        ".section .text.get,\"ax\",@progbits\n.type get,@function\n"
        "get: lea .rodata.whole+6(%rip),%rax\nret\n.size get,.-get\n"
        ".type immediate,@function\n"
        "immediate: xor %eax,%eax\ncmpb $0x74,.rodata.whole+13(%rip)\nsete %al\nret\n.size immediate,.-immediate\n"
        ".type used,@function\n"
        "used: mov table(%rip),%rax\nret\n.size used,.-used\n.text\n");
const char *get(void), *used(void);
uint32_t immediate(void);
ENTRY(merge_whole)
{
    const char *word = get();
    for (int i = 0; i < 7; i++)
        out[i] = (uint64_t)word[i];
    out[7] = immediate();
    for (int i = 0; i < 5; i++)
        out[8 + i] = (uint64_t)used()[i];
    return 0;
}
