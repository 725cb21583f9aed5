// A section that no loader would load.
#include "../ifunc.h"
__asm__(".section .annotations,\"\",@progbits\n.globl annotation\nannotation: .quad 7\n.text\n");
extern uint64_t annotation;
ENTRY(note_only) { return (uint32_t)(uintptr_t)&annotation; }
