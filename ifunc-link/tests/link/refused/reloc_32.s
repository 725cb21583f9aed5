##Machines: x86-64
## An address of four bytes, as code at fixed addresses has it.
        .section .text.reloc_32_main,"ax",@progbits
        .globl reloc_32_main
        .type reloc_32_main,@function
reloc_32_main:
        mov $here,%eax
        xor %eax,%eax
        ret
        .size reloc_32_main,.-reloc_32_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
