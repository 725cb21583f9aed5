##Machines: x86-64
## The GOT itself.
        .section .text.reloc_gotpc32_main,"ax",@progbits
        .globl reloc_gotpc32_main
        .type reloc_gotpc32_main,@function
reloc_gotpc32_main:
        lea _GLOBAL_OFFSET_TABLE_(%rip),%rbx
        xor %eax,%eax
        ret
        .size reloc_gotpc32_main,.-reloc_gotpc32_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
