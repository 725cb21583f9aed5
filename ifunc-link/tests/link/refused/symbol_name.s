##Machines: x86-64
#  No import table holds the name of this symbol: it has letters that are not ASCII.
        .section .text.symbol_name_main,"ax",@progbits
        .globl symbol_name_main
        .type symbol_name_main,@function
symbol_name_main:
        jmp "größe"@PLT
        .size symbol_name_main,.-symbol_name_main
        .section .note.GNU-stack,"",@progbits
