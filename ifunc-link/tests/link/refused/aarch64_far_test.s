##Machines: aarch64
// `tbz` reaches 32 KiB, and no linker makes a thunk for it.
        .section .text.aarch64_far_test_main,"ax",@progbits
        .globl aarch64_far_test_main
        .type aarch64_far_test_main,%function
aarch64_far_test_main:
        tbz x0,#3,host_add
        ret
        .space 1 << 16
        .size aarch64_far_test_main,.-aarch64_far_test_main
