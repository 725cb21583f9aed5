##Machines: x86-64
## An address of one byte.
        .section .text.reloc_8_main,"ax",@progbits
        .globl reloc_8_main
        .type reloc_8_main,@function
reloc_8_main:
        mov $there,%al
        xor %eax,%eax
        ret
        .size reloc_8_main,.-reloc_8_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
