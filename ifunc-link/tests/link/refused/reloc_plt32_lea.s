##Machines: x86-64
## The address of an import's trampoline: it would be another than the target's.
        .section .text.reloc_plt32_lea_main,"ax",@progbits
        .globl reloc_plt32_lea_main
        .type reloc_plt32_lea_main,@function
reloc_plt32_lea_main:
        lea there@PLT(%rip),%rax
        xor %eax,%eax
        ret
        .size reloc_plt32_lea_main,.-reloc_plt32_lea_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
