##Machines: aarch64
// A load of eight bytes names an address that is a multiple of eight.
        .section .text.aarch64_misaligned_main,"ax",@progbits
        .globl aarch64_misaligned_main
        .type aarch64_misaligned_main,%function
aarch64_misaligned_main:
        adrp x0,odd
        ldr x0,[x0,:lo12:odd]
        ret
        .size aarch64_misaligned_main,.-aarch64_misaligned_main
        .section .data.odd,"aw",@progbits
        .balign 8
        .word 1
odd:    .quad 2
        .size odd,8
