##Machines: aarch64
// Addresses of 32 bits and less, in code and data.
        .section .text.aarch64_abs32_main,"ax",@progbits
        .globl aarch64_abs32_main
        .type aarch64_abs32_main,%function
aarch64_abs32_main:
        movz x0,#:abs_g1:value
        movk x0,#:abs_g0_nc:value
        adrp x1,short
        ldr w1,[x1,:lo12:short]
        ret
        .size aarch64_abs32_main,.-aarch64_abs32_main
        .section .data.short,"aw",@progbits
        .balign 8
short:  .word value
        .hword value
        .size short,8
        .section .bss.value,"aw",@nobits
        .balign 8
value:  .zero 8
        .size value,8
