/* The ifuncs that the tests of the C interface send. Source arguments are copied to the payload by all of them, unless it is said. */
#include <ifunc.h>
#include <string.h>

#define COPIED(name)                                                                                                   \
    IFUNC_PAYLOAD_BOUND(name);                                                                                         \
    size_t name##_payload_bound(void *source_args, size_t n)                                                           \
    {                                                                                                                  \
        (void)source_args;                                                                                             \
        return n;                                                                                                      \
    }                                                                                                                  \
    int name##_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)                          \
    {                                                                                                                  \
        if (n)                                                                                                         \
            memcpy(payload, source_args, n);                                                                           \
        *payload_size = n;                                                                                             \
        return 0;                                                                                                      \
    }

struct state {
    uint64_t counter;
};

/* Adds to the counter and answers it. */
COPIED(add)
IFUNC_MAIN_WITH_CONTEXT(add);
uint32_t add_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    struct state *state = target_args;
    uint64_t delta;
    if (n != sizeof delta)
        return IFUNC_BAD_PAYLOAD;
    memcpy(&delta, payload, sizeof delta);
    state->counter += delta;
    return ifunc_answer(ctx, &state->counter, sizeof state->counter);
}

/* Answers the payload. */
COPIED(echo)
IFUNC_MAIN_WITH_CONTEXT(echo);
IFUNC_SHAREABLE(echo);
uint32_t echo_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    (void)target_args;
    return ifunc_answer(ctx, payload, n);
}

/* Answers the address of the target arguments. */
COPIED(whose)
IFUNC_MAIN_WITH_CONTEXT(whose);
uint32_t whose_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    (void)payload, (void)n;
    return ifunc_answer(ctx, &target_args, sizeof target_args);
}

/* Its payload is the address of its source arguments, and their number. Fails with the number if that is odd. */
IFUNC_PAYLOAD_BOUND(args);
IFUNC_MAIN_WITH_CONTEXT(args);
size_t args_payload_bound(void *source_args, size_t n)
{
    (void)source_args, (void)n;
    return 4 * sizeof(uint64_t);
}
int args_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    uint64_t said[2] = {(uintptr_t)source_args, n};
    if (n % 2)
        return (int)n;
    memcpy(payload, said, sizeof said);
    *payload_size = sizeof said;
    return 0;
}
uint32_t args_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    (void)target_args;
    return ifunc_answer(ctx, payload, n);
}

/* Calls a function of the host with the payload, and answers what it returns times a variable of the host. */
COPIED(ask)
IFUNC_MAIN_WITH_CONTEXT(ask);
IFUNC_IMPORT(uint64_t, host_ask, uint64_t what);
IFUNC_IMPORT_DATA(uint64_t, host_factor);
uint32_t ask_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    uint64_t what, answer;
    (void)target_args;
    if (n != sizeof what)
        return IFUNC_BAD_PAYLOAD;
    memcpy(&what, payload, sizeof what);
    answer = host_ask(what) * host_factor;
    return ifunc_answer(ctx, &answer, sizeof answer);
}

/* Ends by `abort`, which the target contains. */
COPIED(aborts)
IFUNC_MAIN(aborts);
IFUNC_IMPORT(void, abort, void);
void aborts_main(void *payload, size_t n, void *target_args)
{
    (void)payload, (void)n, (void)target_args;
    abort();
}

/* Writes to the address 8. */
COPIED(crashes)
IFUNC_MAIN(crashes);
void crashes_main(void *payload, size_t n, void *target_args)
{
    volatile uint64_t *nowhere = (volatile uint64_t *)(uintptr_t)8;
    (void)payload, (void)n, (void)target_args;
    *nowhere = 1;
}

/* Never ends. */
COPIED(spins)
IFUNC_MAIN(spins);
void spins_main(void *payload, size_t n, void *target_args)
{
    volatile uint64_t turns = 0;
    (void)payload, (void)n, (void)target_args;
    for (;;)
        turns = turns + 1;
}

/* Needs a function of a shared library. */
COPIED(deflates)
IFUNC_MAIN_WITH_CONTEXT(deflates);
IFUNC_IMPORT(unsigned long, crc32, unsigned long crc, const unsigned char *bytes, unsigned len);
uint32_t deflates_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    uint64_t crc = crc32(0, payload, (unsigned)n);
    (void)target_args;
    return ifunc_answer(ctx, &crc, sizeof crc);
}

/* Answers in parts: 1 to the payload's number, then nothing. */
COPIED(counts)
IFUNC_MAIN_WITH_CONTEXT(counts);
uint32_t counts_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    uint64_t last, part;
    (void)target_args;
    if (n != sizeof last)
        return IFUNC_BAD_PAYLOAD;
    memcpy(&last, payload, sizeof last);
    for (part = 1; part <= last; part++)
        ifunc_reply(ctx, &part, sizeof part);
    return IFUNC_OK;
}

/* Adds 1 to the counter and starts itself twice on this node, so many levels deep. */
COPIED(spreads)
IFUNC_MAIN_WITH_CONTEXT(spreads);
uint32_t spreads_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    struct state *state = target_args;
    uint64_t depth;
    if (n != sizeof depth)
        return IFUNC_BAD_PAYLOAD;
    memcpy(&depth, payload, sizeof depth);
    state->counter++;
    if (depth--) {
        ifunc_send(ctx, ifunc_node(ctx), spreads, &depth, sizeof depth);
        ifunc_send(ctx, ifunc_node(ctx), spreads, &depth, sizeof depth);
    }
    return IFUNC_OK;
}

/* Starts `spreads` on a node: the payload is the node's number and the depth. */
COPIED(visits)
IFUNC_MAIN_WITH_CONTEXT(visits);
uint32_t visits_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    uint64_t what[2];
    (void)target_args;
    if (n != sizeof what)
        return IFUNC_BAD_PAYLOAD;
    memcpy(what, payload, sizeof what);
    return ifunc_send(ctx, (uint32_t)what[0], spreads, &what[1], sizeof what[1]) == IFUNC_SENT ? IFUNC_OK : IFUNC_BAD_PAYLOAD;
}
