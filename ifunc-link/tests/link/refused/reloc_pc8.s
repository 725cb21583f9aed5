##Machines: x86-64
## A distance of one byte.
        .section .text.reloc_pc8_main,"ax",@progbits
        .globl reloc_pc8_main
        .type reloc_pc8_main,@function
reloc_pc8_main:
        .byte there-.
        xor %eax,%eax
        ret
        .size reloc_pc8_main,.-reloc_pc8_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
