##Machines: x86-64
## The distance to an import in data: it would change with the target.
        .section .text.reloc_plt32_data_main,"ax",@progbits
        .globl reloc_plt32_data_main
        .type reloc_plt32_data_main,@function
reloc_plt32_data_main:
        .long there@PLT
        xor %eax,%eax
        ret
        .size reloc_plt32_data_main,.-reloc_plt32_data_main
        .section .data.here,"aw",@progbits
        .type here,@object
here:   .quad 1
        .size here,8
