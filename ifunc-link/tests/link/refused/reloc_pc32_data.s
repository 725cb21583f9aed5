##Machines: x86-64
## The distance to an import in data: it would change with the target.
        .section .text.reloc_pc32_data_main,"ax",@progbits
        .globl reloc_pc32_data_main
        .type reloc_pc32_data_main,@function
reloc_pc32_data_main:
        lea table(%rip),%rax
        ret
        .size reloc_pc32_data_main,.-reloc_pc32_data_main
        .section .rodata.table,"a",@progbits
        .type table,@object
table:  .long there-.
        .size table,4
