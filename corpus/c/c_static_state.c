/* features: static locals; state that lasts; zeroed memory */
#include "corpus.h"

static uint64_t totals[4] = {1, 2, 3, 4};
static uint8_t seen[5000];

static uint64_t next(int restart)
{
    static uint64_t state = 12345;

    if (restart)
        state = 12345;
    state = state * 6364136223846793005 + 1442695040888963407;
    return state >> 33;
}

CASE(c_static_state)
{
    if (n == 0) {
        memset(seen, 0, sizeof seen);
        totals[0] = 1, totals[1] = 2, totals[2] = 3, totals[3] = 4;
    }
    put(w, next(n == 0));
    for (size_t i = 0; i < n; i++) {
        seen[(in[i] * 19 + i) % sizeof seen]++;
        totals[in[i] % 4] += next(0) ^ w->seed;
    }
    for (size_t i = 0; i < 4; i++)
        put(w, totals[i]);
    put_bytes(w, seen, sizeof seen);
}
