/* features: two ifuncs of one file; functions that both use */
#include "corpus.h"

static uint64_t shared = 3;

NOINLINE static uint64_t both(uint64_t a)
{
    shared = 3;
    for (int i = 0; i < 5; i++)
        shared = shared * 31 + a;
    return shared;
}

CASE(c_two)
{
    for (size_t i = 0; i < words(n) && i < 300; i++)
        put(w, both(word(in, n, i)));
}

CASE_OF_OLD(c_two_of_old)
{
    for (size_t i = words(n) < 300 ? words(n) : 300; i-- > 0;)
        put(w, both(word(in, n, i) ^ w->seed));
}
