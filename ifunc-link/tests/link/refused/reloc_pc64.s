##Machines: x86-64
## A distance of eight bytes.
        .section .text.reloc_pc64_main,"ax",@progbits
        .globl reloc_pc64_main
        .type reloc_pc64_main,@function
reloc_pc64_main:
        movabs $there-.,%rax
        xor %eax,%eax
        ret
        .size reloc_pc64_main,.-reloc_pc64_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
