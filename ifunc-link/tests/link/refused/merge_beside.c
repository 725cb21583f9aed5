//#Object: parts/merge_beside_b.c
// Where the object with the constants does not say that they belong together, they are cut.
#include "../ifunc.h"
#ifdef __aarch64__
#define LOAD "adrp x0,constants+8\nldr x0,[x0,:lo12:constants+8]"
#else
#define LOAD "mov constants+8(%rip),%rax"
#endif
__asm__(".section .text.beside,\"ax\",@progbits\n.type beside,@function\n"
        ".hidden constants\nbeside: " LOAD "\nret\n.size beside,.-beside\n.text\n");
uint64_t beside(void);
ENTRY(merge_beside) { return (uint32_t)beside(); }
