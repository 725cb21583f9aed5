##Machines: aarch64
// Kinds that only a linked file has, that no place is for, and that are for another instruction.
        .section .text.aarch64_odd_kinds_main,"ax",@progbits
        .globl aarch64_odd_kinds_main
        .type aarch64_odd_kinds_main,%function
aarch64_odd_kinds_main:
        movz x0,#:prel_g0:aarch64_odd_kinds_main
        .reloc ., R_AARCH64_LDST32_ABS_LO12_NC, value
        ldr x1,[x1]
        .reloc ., R_AARCH64_CALL26, host_add
        nop
        ret
        .size aarch64_odd_kinds_main,.-aarch64_odd_kinds_main
        .section .data.value,"aw",@progbits
        .balign 8
value:  .quad 1
        .size value,8
