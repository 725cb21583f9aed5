/* features: inline assembly; assembly that refers to static data */
#include "corpus.h"

static uint64_t kept = 17;

CASE(c_inline_asm)
{
    kept = 17;
    for (size_t i = 0; i < words(n) && i < 300; i++) {
        uint64_t value = word(in, n, i), high, low = value, count;
        unsigned char carry;

#ifdef __aarch64__
        uint64_t old, sum;
        uint32_t failed;

        __asm__("umulh %0, %2, %3\n mul %1, %2, %3" : "=&r"(high), "=&r"(low) : "r"(value), "r"(w->seed));
        __asm__("adds %0, %0, %2\n cset %w1, cs" : "+r"(low), "=r"(carry) : "r"(value) : "cc");
        __asm__("mov %0, #0\n1: add %0, %0, #1\n lsr %1, %1, #3\n cbnz %1, 1b" : "=&r"(count), "+r"(value));
        __asm__("1: ldaxr %0, %2\n add %1, %0, %4\n stlxr %w3, %1, %2\n cbnz %w3, 1b"
                : "=&r"(old), "=&r"(sum), "+Q"(kept), "=&r"(failed)
                : "r"(low)
                : "memory");
        low = old;
#else
        __asm__("mulq %3" : "=d"(high), "+a"(low) : "0"((uint64_t)0), "rm"(w->seed) : "cc");
        __asm__("addq %2, %0; setc %1" : "+r"(low), "=q"(carry) : "r"(value) : "cc");
        __asm__("xorl %k0, %k0\n1: leaq 1(%0), %0\n shrq $3, %1\n jnz 1b" : "=&r"(count), "+r"(value) : : "cc");
        __asm__("lock; xaddq %0, %1" : "+r"(low), "+m"(kept) : : "cc", "memory");
#endif
        put(w, high);
        put(w, low);
        put(w, carry + count * 256);
    }
    put(w, kept);
}
