/* Goes from rank to rank and collects the most frequent keys. The last rank answers the one that sent it. */
#include <ifunc.h>

#include "../table.h"

IFUNC_PAYLOAD_BOUND(tour_top);
IFUNC_MAIN_WITH_CONTEXT(tour_top);

size_t tour_top_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    (void)n;
    return sizeof(struct tour);
}

int tour_top_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    if (n != sizeof(struct tour))
        return -1;
    __builtin_memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

uint32_t tour_top_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    struct tour *tour = payload;

    if (payload_size != sizeof *tour)
        return IFUNC_BAD_PAYLOAD;
    visit(tour, target_args);
    if (tour->visited == tour->ranks)
        return ifunc_answer(ctx, tour, sizeof *tour);
    if (ifunc_forward(ctx, (ifunc_node(ctx) + 1) % tour->ranks, tour_top, tour, sizeof *tour) != IFUNC_SENT)
        return IFUNC_BAD_ANSWER;
    return IFUNC_OK;
}
