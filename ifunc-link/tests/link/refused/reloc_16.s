##Machines: x86-64
## An address of two bytes.
        .section .text.reloc_16_main,"ax",@progbits
        .globl reloc_16_main
        .type reloc_16_main,@function
reloc_16_main:
        mov $there,%ax
        xor %eax,%eax
        ret
        .size reloc_16_main,.-reloc_16_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
