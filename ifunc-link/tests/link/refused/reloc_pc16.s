##Machines: x86-64
## A distance of two bytes.
        .section .text.reloc_pc16_main,"ax",@progbits
        .globl reloc_pc16_main
        .type reloc_pc16_main,@function
reloc_pc16_main:
        .word there-.
        xor %eax,%eax
        ret
        .size reloc_pc16_main,.-reloc_pc16_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
