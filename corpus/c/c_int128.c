/* features: __int128; functions of the compiler's library */
#include "corpus.h"

static void put_wide(struct world *w, unsigned __int128 value)
{
    put(w, (uint64_t)value);
    put(w, (uint64_t)(value >> 64));
}

CASE(c_int128)
{
    unsigned __int128 sum = w->seed;
    __int128 signed_sum = -(__int128)w->seed;

    for (size_t i = 0; i < words(n) && i < 150; i++) {
        uint64_t value = word(in, n, i);
        unsigned __int128 by = (unsigned __int128)(value | 1) << (value % 60);
        sum = sum * (value | 5) + value;
        put_wide(w, sum / by);
        put_wide(w, sum % by);
        signed_sum = signed_sum / 3 + (int64_t)value;
        put_wide(w, (unsigned __int128)(signed_sum % ((__int128)(value >> 3) + 9)));
        put_double(w, (double)sum);
        put_double(w, (double)signed_sum);
        put_wide(w, (unsigned __int128)((double)(value >> 1) * 1e12));
        put(w, sum > by);
        put_wide(w, sum >> (value % 128) | by << (value % 64));
    }
}
