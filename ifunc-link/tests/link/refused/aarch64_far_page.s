##Machines: aarch64
// An offset that leads farther out of a small image than `adr` reaches, which replaces `adrp` there.
        .section .text.aarch64_far_page_main,"ax",@progbits
        .globl aarch64_far_page_main
        .type aarch64_far_page_main,%function
aarch64_far_page_main:
        adrp x0,aarch64_far_page_main+0xff000
        add x0,x0,:lo12:aarch64_far_page_main+0xff000
        adrp x1,aarch64_far_page_main+0x200000
        add x1,x1,:lo12:aarch64_far_page_main+0x200000
        ret
        .size aarch64_far_page_main,.-aarch64_far_page_main
