/* features: function pointers in static tables; functions of the host in static tables; static data with pointers */
#include "corpus.h"
#include "host/host.h"

typedef uint64_t operation(uint64_t, uint64_t);

static uint64_t rotate(uint64_t a, uint64_t b) { return a << (b & 31) | a >> (64 - (b & 31)) % 64; }
static uint64_t blend(uint64_t a, uint64_t b) { return (a & 0xff00ff00ff00ff00) | (b & 0x00ff00ff00ff00ff); }

static const struct entry {
    const char *name;
    operation *run;
    const uint64_t *by;
} entries[] = {
    {"rotate", rotate, &host_table[3]},
    {"add", host_add, &host_counter},
    {"blend", blend, 0},
    {"mul", host_mul, host_table},
};
static operation *changeable[3] = {blend, host_add, rotate};
static const struct entry *const by_length[] = {&entries[1], &entries[3], &entries[2], &entries[0]};

CASE(c_tables)
{
    uint64_t state = w->seed;

    host_counter = 5;
    for (size_t i = 0; i < words(n) && i < 150; i++) {
        uint64_t value = word(in, n, i);
        const struct entry *entry = by_length[value % 4];
        state = entry->run(state, entry->by ? *entry->by : value);
        state = changeable[i % 3](state, value);
        put(w, state);
        put_text(w, entry->name);
    }
    changeable[n % 3] = changeable[(n + 1) % 3];
    put(w, changeable[0] == host_add);
    put(w, changeable[0](state, 1));
    changeable[0] = blend;
    changeable[1] = host_add;
    changeable[2] = rotate;
}
