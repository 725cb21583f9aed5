//#Machines: x86-64
//#ExpectImports: host_counter host_table
//#ExpectImportRelocations: yes
//#Covers: R_X86_64_REX_GOTPCRELX | test r64, [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | and r64, [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | or r64, [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | xor r64, [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | add r64, [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | sub r64, [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | cmp r64, [rip] | import | GOT entry
//#Covers: R_X86_64_GOTPCREL | cmp [rip], imm | import | GOT entry
//#Covers: R_X86_64_GOTPCREL | push [rip] | import | GOT entry
//#Covers: R_X86_64_GOTPCREL | mov xmm, [rip] | import | GOT entry
//#Covers: R_X86_64_GOTPCREL | cmovcc r64, [rip] | import | GOT entry
//#Covers: R_X86_64_GOTPCREL | other [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | add r64, [rip] | image | GOT entry
// Every operation on an entry of the GOT that a compiler could think of, with low and high registers. Results are
// differences and flags: addresses are not the same as in a library.
#include "ifunc.h"
__attribute__((visibility("hidden"))) uint64_t own_data[4] = {5, 6, 7, 8};
__asm__(".section .text.operands,\"ax\",@progbits\n.type operands,@function\n"
        "operands: push %rbx\npush %r12\npush %r15\n"
        "mov host_table@GOTPCREL(%rip),%rcx\nmov host_table@GOTPCREL(%rip),%r12\nmov host_table@GOTPCREL(%rip),%rsi\n"
        "xor %eax,%eax\n"
        "test %r12,host_table@GOTPCREL(%rip)\nsetne %al\n"
        "mov %rcx,%rdx\nand host_table@GOTPCREL(%rip),%rdx\ncmp %rcx,%rdx\nje 1f\nor $2,%eax\n1:\n"
        "mov %rcx,%r15\nor host_table@GOTPCREL(%rip),%r15\ncmp %rcx,%r15\nje 1f\nor $4,%eax\n1:\n"
        "mov %rcx,%rdx\nxor host_table@GOTPCREL(%rip),%rdx\nje 1f\nor $8,%eax\n1:\n"
        "mov $16,%ebx\nadd host_table@GOTPCREL(%rip),%rbx\nsub %rcx,%rbx\nadd %rbx,%rax\n"
        "mov $64,%ebx\nadd %rcx,%rbx\nsub host_table@GOTPCREL(%rip),%rbx\nadd %rbx,%rax\n"
        "cmp host_table@GOTPCREL(%rip),%r12\nje 1f\nor $128,%eax\n1:\n"
        "cmpq $0,host_counter@GOTPCREL(%rip)\njne 1f\nor $256,%eax\n1:\n"
        "cmpq $0x7fffffff,host_counter@GOTPCREL(%rip)\njne 1f\nor $512,%eax\n1:\n"
        "push host_counter@GOTPCREL(%rip)\npop %rdx\nadd (%rdx),%rax\n"
        "movq host_counter@GOTPCREL(%rip),%xmm0\nmovhps host_table@GOTPCREL(%rip),%xmm0\n"
        "movq %xmm0,%rdx\nadd (%rdx),%rax\npsrldq $8,%xmm0\nmovq %xmm0,%rdx\nadd 8(%rdx),%rax\n"
        "xor %edx,%edx\ncmp %rcx,%rcx\ncmove host_counter@GOTPCREL(%rip),%rdx\nadd (%rdx),%rax\n"
        "bt $200,%rcx\nbtq $3,host_counter@GOTPCREL(%rip)\n"
        "mov $1000,%ebx\nadd own_data@GOTPCREL(%rip),%rbx\nlea own_data(%rip),%rdx\nsub %rdx,%rbx\nadd %rbx,%rax\n"
        ".reloc ., R_X86_64_NONE, nobody_needs_this\n"
        "pop %r15\npop %r12\npop %rbx\nret\n.size operands,.-operands\n.text\n");
uint64_t operands(void);
ENTRY(operands)
{
    out[0] = operands();
    out[1] = own_data[n % 4];
    return 0;
}
