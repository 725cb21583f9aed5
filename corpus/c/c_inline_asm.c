/* features: inline assembly; assembly that refers to static data */
#include "corpus.h"

static uint64_t kept = 17;

CASE(c_inline_asm)
{
    kept = 17;
    for (size_t i = 0; i < words(n) && i < 300; i++) {
        uint64_t value = word(in, n, i), high, low = value, count;
        unsigned char carry;

        __asm__("mulq %3" : "=d"(high), "+a"(low) : "0"((uint64_t)0), "rm"(w->seed) : "cc");
        __asm__("addq %2, %0; setc %1" : "+r"(low), "=q"(carry) : "r"(value) : "cc");
        __asm__("xorl %k0, %k0\n1: leaq 1(%0), %0\n shrq $3, %1\n jnz 1b" : "=&r"(count), "+r"(value) : : "cc");
        __asm__("lock; xaddq %0, %1" : "+r"(low), "+m"(kept) : : "cc", "memory");
        put(w, high);
        put(w, low);
        put(w, carry + count * 256);
    }
    put(w, kept);
}
