/* An ifunc of the second generation: payload_bound, then payload_init(source_args, n, payload, payload_size). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct state {
    uint64_t counter;
    uint64_t changes;
};

size_t t_c_add_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n + 100;
}

int t_c_add_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    if (n != sizeof(uint64_t)) {
        return -1;
    }
    memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

void t_c_add_main(void *payload, size_t payload_size, void *target_args)
{
    struct state *state = target_args;
    uint64_t delta;

    memcpy(&delta, payload, payload_size);
    state->counter += delta;
    state->changes += 1;
}
