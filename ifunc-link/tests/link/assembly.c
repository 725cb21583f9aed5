//#Machines: x86-64
//#ExpectImports: host_add host_counter host_table
//#Covers: R_X86_64_GOTPCREL | call *[rip] | image | distance
// Forms that compilers rarely choose: push, add, an immediate behind the operand, r12 and r13 as destinations.
#include "ifunc.h"
__asm__(".section .text.forms,\"ax\",@progbits\n.type forms,@function\nforms:\n"
        "push %r12\npush %r13\npush %rbx\n"
        "mov host_table@GOTPCREL(%rip),%r12\nmov host_table@GOTPCREL(%rip),%r13\n"
        "mov (%r12),%rax\nadd 8(%r13),%rax\n"
        "push host_counter@GOTPCREL(%rip)\npop %rbx\nadd (%rbx),%rax\n"
        "mov %r12,%rbx\nsub host_table@GOTPCREL(%rip),%rbx\nadd %rbx,%rax\n"
        "cmpq $0,host_table@GOTPCREL(%rip)\nje 1f\ninc %rax\n1:\n"
        "cmpq $0x12345678,host_add@GOTPCREL(%rip)\nje 2f\ninc %rax\n2:\n"
        "mov own_data@GOTPCREL(%rip),%rbx\nadd (%rbx),%rax\n"
        "push own_data@GOTPCREL(%rip)\npop %rbx\nadd (%rbx),%rax\n"
        "mov own_data@GOTPCREL(%rip),%rbx\ncmp own_data@GOTPCREL(%rip),%rbx\nje 3f\nxor %eax,%eax\n3:\n"
        "pop %rbx\npop %r13\npop %r12\nret\n.size forms,.-forms\n.text\n");
uint64_t own_data = 1000;
uint64_t forms(void);
ENTRY(assembly)
{
    out[0] = forms();
    return 0;
}
