##Machines: aarch64
// Imports reached as if they were in the image.
        .section .text.aarch64_direct_main,"ax",@progbits
        .globl aarch64_direct_main
        .type aarch64_direct_main,%function
aarch64_direct_main:
        adrp x0,host_table
        add x0,x0,:lo12:host_table
        ldr x1,[x0,:lo12:host_counter]
        adr x2,host_add
        ldr x3,host_counter
        adrp x4,table
        ldr w4,[x4,:lo12:table]
        ret
        .size aarch64_direct_main,.-aarch64_direct_main
        .section .rodata.table,"a",@progbits
        .balign 8
table:  .word host_table-.
        .size table,4
