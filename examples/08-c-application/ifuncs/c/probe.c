/* Reads the temperatures of a half of the rod while the simulation runs. */
#include <ifunc.h>

#include "../../rod.h"

IFUNC_PAYLOAD_BOUND(probe);
IFUNC_MAIN_WITH_CONTEXT(probe);

size_t probe_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    (void)n;
    return 0;
}

int probe_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    (void)source_args;
    (void)n;
    (void)payload;
    *payload_size = 0;
    return 0;
}

uint32_t probe_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    const struct rod *rod = target_args;
    struct reading reading = {rod->step, rod->cell[1], rod->cell[1], 0.0};
    unsigned n;

    (void)payload;
    (void)payload_size;
    for (n = 1; n <= CELLS; n++) {
        reading.least = rod->cell[n] < reading.least ? rod->cell[n] : reading.least;
        reading.most = rod->cell[n] > reading.most ? rod->cell[n] : reading.most;
        reading.mean += rod->cell[n];
    }
    reading.mean /= CELLS;
    return ifunc_answer(ctx, &reading, sizeof reading);
}
