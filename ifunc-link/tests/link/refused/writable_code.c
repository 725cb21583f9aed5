// Code that may be written is no code of an image.
#include "../ifunc.h"
__asm__(".section .patched,\"awx\",@progbits\n.globl patched\n.type patched,@function\npatched: mov $1,%eax\nret\n"
        ".size patched,.-patched\n.text\n");
uint32_t patched(void);
ENTRY(writable_code) { return patched(); }
