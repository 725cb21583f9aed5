##Machines: x86-64
## The address of an import, as if it were near.
        .section .text.reloc_pc32_lea_main,"ax",@progbits
        .globl reloc_pc32_lea_main
        .type reloc_pc32_lea_main,@function
reloc_pc32_lea_main:
        lea there(%rip),%rax
        xor %eax,%eax
        ret
        .size reloc_pc32_lea_main,.-reloc_pc32_lea_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
