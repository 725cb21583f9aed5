// Code that may be written is no code of an image.
#include "../ifunc.h"
#include "../parts/returns.h"
__asm__(".section .patched,\"awx\",@progbits\n.globl patched\n.type patched,@function\npatched: " RETURNS("1")
        ".size patched,.-patched\n.text\n");
uint32_t patched(void);
ENTRY(writable_code) { return patched(); }
