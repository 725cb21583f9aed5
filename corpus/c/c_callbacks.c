/* features: callbacks into the host; function pointers handed to the host and back */
#include "corpus.h"
#include "host/host.h"

struct fold {
    struct world *w;
    uint64_t sum;
};

static void visit(void *state, uint64_t value)
{
    struct fold *fold = state;
    fold->sum = host_add(fold->sum * 31, value);
    put(fold->w, fold->sum);
}

static uint64_t xor_them(uint64_t a, uint64_t b) { return a ^ b; }

CASE(c_callbacks)
{
    struct fold fold = {w, n};
    uint64_t (*chosen)(uint64_t, uint64_t) = n % 2 ? xor_them : host_mul;

    host_each(visit, &fold);
    for (size_t i = 0; i < words(n); i++) {
        fold.sum = host_apply(chosen, fold.sum, word(in, n, i));
        fold.sum = host_apply(host_add, fold.sum, 1);
    }
    put(w, fold.sum);
    put(w, chosen == host_mul);
}
