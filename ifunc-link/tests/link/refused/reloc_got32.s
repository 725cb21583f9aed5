##Machines: x86-64
## An offset in the GOT, of four bytes.
        .section .text.reloc_got32_main,"ax",@progbits
        .globl reloc_got32_main
        .type reloc_got32_main,@function
reloc_got32_main:
        .long there@GOT
        xor %eax,%eax
        ret
        .size reloc_got32_main,.-reloc_got32_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
