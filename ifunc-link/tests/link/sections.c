//#ExpectImports: host_add
//#ExpectRw: yes
// Sections by other names than compilers choose, and with flags that only the linker of a program cares for.
#include "ifunc.h"
__attribute__((section("my_code"), noinline)) static uint64_t in_my_code(uint64_t x) { return host_add(x, 1); }
__attribute__((section(".text.of_mine"), noinline)) static uint64_t in_text(uint64_t x) { return x * 3; }
__attribute__((section("my_data"))) static volatile uint64_t in_my_data = 5;
__attribute__((section("my_constants"))) static const uint64_t in_my_constants[2] = {8, 9};
__attribute__((section(".bss.mine"))) static volatile uint64_t in_my_bss;
__attribute__((section(".data.rel.ro.mine"))) static const void *const in_relro[2] = {in_my_constants, (void *)in_text};
#ifdef __aarch64__
#define ADD(s) "adrp x1," s "\nldr x1,[x1,:lo12:" s "]\nadd x0,x0,x1\n"
#define SUM                                                                                                            \
    "mov x0,#0\n" ADD("kept") ADD("ordered") ADD("noted") ADD("merged") ADD("merged+8")                                 \
        "adrp x1,:got:grouped\nldr x1,[x1,:got_lo12:grouped]\nldr x1,[x1]\nadd x0,x0,x1\n"
#else
#define SUM                                                                                                            \
    "mov kept(%rip),%rax\nadd ordered(%rip),%rax\nadd noted(%rip),%rax\n"                                              \
    "mov grouped@GOTPCREL(%rip),%rdx\nadd (%rdx),%rax\nadd merged(%rip),%rax\nadd merged+8(%rip),%rax\n"
#endif
__asm__(".section .kept,\"aR\",@progbits\n.balign 8\nkept: .quad 11\n"
        ".section .note.mine,\"a\",@note\n.balign 8\nnoted: .quad 13\n"
        ".section .grouped,\"aG\",@progbits,a_group,comdat\n.balign 8\n.weak grouped\ngrouped: .quad 14\n"
        ".section .merged,\"aM\",@progbits,16\n.balign 16\n.quad 1,2\nmerged: .quad 15,16\n"
        ".section .excluded,\"e\",@progbits\n.quad 99\n"
        ".section .text.asm_user,\"ax\",@progbits\n.type asm_user,@function\n"
        "asm_user: " SUM "ret\n"
        ".size asm_user,.-asm_user\n"
        ".section .ordered,\"ao\",@progbits,asm_user\n.balign 8\nordered: .quad 12\n.text\n");
uint64_t asm_user(void);
ENTRY(sections)
{
    const void *const *volatile relro = in_relro;
    in_my_data += in_my_code(n);
    in_my_bss += in_text(payload[0]);
    out[0] = in_my_data;
    out[1] = in_my_bss;
    out[2] = ((const uint64_t *)relro[0])[n % 2];
    out[3] = ((uint64_t(*)(uint64_t))relro[1])(4);
    out[4] = asm_user();
    return 0;
}
