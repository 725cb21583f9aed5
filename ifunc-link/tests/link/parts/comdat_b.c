#include "../ifunc.h"
#include "plus.h"
__asm__(".section .text.shared_inline,\"axG\",@progbits,shared_inline,comdat\n"
        ".weak shared_inline\n.type shared_inline,@function\n"
        "shared_inline: " PLUS("7") "\nret\n.size shared_inline,.-shared_inline\n.text\n");
__asm__(".section .text.shared_strong,\"axG\",@progbits,shared_strong,comdat\n"
        ".globl shared_strong\n.type shared_strong,@function\n"
        "shared_strong: " PLUS("9") "\nret\n.size shared_strong,.-shared_strong\n.text\n");
uint64_t shared_inline(uint64_t), shared_strong(uint64_t);
uint64_t other_user(uint64_t x) { return shared_inline(x) * shared_strong(x); }
