/* features: data of the host; functions of the host; pointers into data of the host */
#include "corpus.h"
#include "host/host.h"

static uint64_t *const third = &host_table[2];
static const char *const *const names = host_names;

CASE(c_globals)
{
    host_counter = w->seed;
    for (size_t i = 0; i < words(n); i++) {
        uint64_t value = word(in, n, i);
        host_counter += value ^ host_table[value % 8];
        put(w, host_add(host_counter, host_mul(value, *third)));
    }
    host_counter -= 7;
    if (host_counter > w->seed)
        host_counter ^= 0x55;
    put(w, host_counter);
    put(w, (uint64_t)(third - host_table));
    put_text(w, names[n % 4]);
    put(w, host_many(n, 1, 2, 3, 4, 5, host_counter, (double)n));
    w->calls++;
}
