/* The relay of `src/travel.rs`, in C: three entries of one image. `t_c_relay` visits nodes, leaves a note on the next one each
 * time, and lets `t_c_relay_end` end on the last one. */
#include <ifunc.h>

struct tour {
    uint32_t route[32];
    uint32_t at, len;
    uint64_t sum;
};

struct state {
    uint64_t counter, changes;
};

IFUNC_PAYLOAD_BOUND(t_c_relay);
IFUNC_MAIN_WITH_CONTEXT(t_c_relay);
IFUNC_PAYLOAD_BOUND(t_c_relay_end);
IFUNC_MAIN_WITH_CONTEXT(t_c_relay_end);
IFUNC_PAYLOAD_BOUND(t_c_relay_note);
IFUNC_MAIN(t_c_relay_note);

static int copy(const void *source_args, size_t n, void *payload, size_t *payload_size)
{
    __builtin_memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

size_t t_c_relay_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_relay_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    return copy(source_args, n, payload, payload_size);
}

size_t t_c_relay_end_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_relay_end_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    return copy(source_args, n, payload, payload_size);
}

size_t t_c_relay_note_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_relay_note_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    return copy(source_args, n, payload, payload_size);
}

void t_c_relay_note_main(void *payload, size_t payload_size, void *target_args)
{
    struct state *state = target_args;
    uint64_t sum = 0;
    if (payload_size != sizeof sum)
        return;
    __builtin_memcpy(&sum, payload, sizeof sum);
    state->counter += sum;
}

uint32_t t_c_relay_end_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    struct state *state = target_args;
    struct tour tour;
    if (payload_size != sizeof tour)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&tour, payload, sizeof tour);
    state->changes++;
    tour.sum = 2 * (tour.sum + ifunc_node(ctx));
    return ifunc_answer(ctx, &tour.sum, sizeof tour.sum);
}

uint32_t t_c_relay_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    struct state *state = target_args;
    struct tour tour;
    if (payload_size != sizeof tour)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&tour, payload, sizeof tour);
    if (tour.len > 32 || tour.at >= tour.len)
        return IFUNC_BAD_PAYLOAD;
    state->changes++;
    tour.sum += ifunc_node(ctx);
    uint32_t next = tour.route[tour.at++];
    if (ifunc_send(ctx, next, t_c_relay_note, &tour.sum, sizeof tour.sum) != IFUNC_SENT)
        return IFUNC_BAD_ANSWER;
    uint32_t sent = tour.at == tour.len ? ifunc_forward(ctx, next, t_c_relay_end, &tour, sizeof tour)
                                        : ifunc_forward(ctx, next, t_c_relay, &tour, sizeof tour);
    return sent == IFUNC_SENT ? IFUNC_OK : IFUNC_BAD_ANSWER;
}
