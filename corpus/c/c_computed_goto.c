/* features: computed goto; labels in static tables */
#include "corpus.h"

CASE(c_computed_goto)
{
    static const void *const program[] = {&&add, &&sub, &&mul, &&shift, &&store, &&swap, &&add, &&skip};
    uint64_t a = w->seed, b = n;
    size_t at = 0;

#define NEXT                                                                                                        \
    if (at >= n)                                                                                                    \
        goto done;                                                                                                  \
    goto *program[in[at++] % 8]

    NEXT;
add:
    a += b;
    NEXT;
sub:
    b -= a;
    NEXT;
mul:
    a *= b | 1;
    NEXT;
shift:
    a = a >> 9 | a << 55;
    NEXT;
store:
    put(w, a ^ b);
    NEXT;
swap:
    a ^= b;
    b ^= a;
    a ^= b;
    NEXT;
skip:
    at++;
    NEXT;
done:
    put(w, a);
    put(w, b);
}
