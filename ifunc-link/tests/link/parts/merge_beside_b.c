__asm__(".section .rodata.cst8,\"aM\",@progbits,8\n.p2align 3\n"
        ".globl constants\n.hidden constants\nconstants: .quad 1\n.quad 2\n.text\n");
