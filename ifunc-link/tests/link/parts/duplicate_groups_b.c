#include "returns.h"
__asm__(".section .text.chosen,\"axG\",@progbits,another_signature,comdat\n"
        ".globl chosen\n.type chosen,@function\nchosen: " RETURNS("2") ".size chosen,.-chosen\n.text\n");
