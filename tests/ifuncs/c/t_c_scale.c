/* An ifunc of the first generation: payload_get_max_size, then payload_init(payload, payload_size, source_args, n).
   It has globals, a table of functions and calls a function of the target's. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct state {
    uint64_t counter;
    uint64_t changes;
};

extern void announce(const char *what, size_t len, uint64_t value);

static uint64_t calls;

static uint64_t twice(uint64_t n) { return 2 * n; }
static uint64_t square(uint64_t n) { return n * n; }

static uint64_t (*const operations[])(uint64_t) = {twice, square};

size_t t_c_scale_payload_get_max_size(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_scale_payload_init(void *payload, size_t payload_size, void *source_args, size_t n)
{
    memcpy(payload, source_args, n < payload_size ? n : payload_size);
    return 0;
}

void t_c_scale_main(void *payload, size_t payload_size, void *target_args)
{
    static const char what[] = "scaled";
    struct state *state = target_args;
    uint8_t operation;

    if (payload_size < 1) {
        return;
    }
    memcpy(&operation, payload, 1);
    state->counter = operations[operation % 2](state->counter);
    state->changes += 1;
    calls += 1;
    announce(what, sizeof what - 1, calls);
}
