//#Object: parts/duplicate_groups_b.c
// Groups of different signatures are no copies of each other.
#include "../ifunc.h"
#include "../parts/returns.h"
__asm__(".section .text.chosen,\"axG\",@progbits,one_signature,comdat\n"
        ".globl chosen\n.type chosen,@function\nchosen: " RETURNS("1") ".size chosen,.-chosen\n.text\n");
uint64_t chosen(void);
ENTRY(duplicate_groups) { return (uint32_t)chosen(); }
