__asm__(".section .text.chosen,\"axG\",@progbits,another_signature,comdat\n"
        ".globl chosen\n.type chosen,@function\nchosen: mov $2,%eax\nret\n.size chosen,.-chosen\n.text\n");
