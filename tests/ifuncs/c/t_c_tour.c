/* The tour of `src/travel.rs`, in C: counts a visit on each node, and goes on to the next one. */
#include <ifunc.h>

struct tour {
    uint32_t route[32];
    uint32_t at, len;
    uint64_t sum;
};

struct state {
    uint64_t counter, changes;
};

IFUNC_PAYLOAD_BOUND(t_c_tour);
IFUNC_MAIN_WITH_CONTEXT(t_c_tour);

size_t t_c_tour_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_tour_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    __builtin_memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

uint32_t t_c_tour_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    struct state *state = target_args;
    struct tour tour;
    if (payload_size != sizeof tour)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&tour, payload, sizeof tour);
    if (tour.len > 32 || tour.at > tour.len)
        return IFUNC_BAD_PAYLOAD;
    state->changes++;
    tour.sum += ifunc_node(ctx);
    if (tour.at == tour.len)
        return ifunc_answer(ctx, &tour.sum, sizeof tour.sum);
    uint32_t next = tour.route[tour.at++];
    return ifunc_forward(ctx, next, t_c_tour, &tour, sizeof tour) == IFUNC_SENT ? IFUNC_OK : IFUNC_BAD_ANSWER;
}
