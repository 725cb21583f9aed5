##Machines: x86-64
## A table at an address of four bytes.
        .section .text.reloc_32s_main,"ax",@progbits
        .globl reloc_32s_main
        .type reloc_32s_main,@function
reloc_32s_main:
        mov here(,%rdi,8),%rax
        xor %eax,%eax
        ret
        .size reloc_32s_main,.-reloc_32s_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
