##Machines: x86-64
## What only a linked file has.
        .section .text.reloc_dynamic_main,"ax",@progbits
        .globl reloc_dynamic_main
        .type reloc_dynamic_main,@function
reloc_dynamic_main:
        lea table(%rip),%rax
        ret
        .size reloc_dynamic_main,.-reloc_dynamic_main
        .section .data.table,"aw",@progbits
        .type table,@object
table:
        .quad 0,0,0,0,0,0,0,0,0,0
        .reloc table,R_X86_64_COPY,there
        .reloc table+8,R_X86_64_GLOB_DAT,there
        .reloc table+16,R_X86_64_JUMP_SLOT,there
        .reloc table+24,R_X86_64_RELATIVE,there
        .reloc table+32,R_X86_64_IRELATIVE,there
        .reloc table+40,R_X86_64_DTPMOD64,there
        .reloc table+48,R_X86_64_DTPOFF64,there
        .reloc table+56,R_X86_64_TPOFF64,there
        .reloc table+64,R_X86_64_TLSDESC,there
        .reloc table+72,R_X86_64_GOTPLT64,there
        .size table,80
