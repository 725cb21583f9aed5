/* The bits that are set in a vector, and the product of two vectors of f32: each CPU level computes them at its own speed. The payload is
   the number of rounds. Rounds differ, so that none can be left out. */
#include <ifunc.h>

enum { LENGTH = 2048, LANES = 32, ROUNDS = 8 };
static float left[LENGTH], right[LENGTH];

IFUNC_PAYLOAD_BOUND(popcount);
IFUNC_PAYLOAD_BOUND(product);
IFUNC_MAIN_WITH_CONTEXT(popcount);
IFUNC_MAIN_WITH_CONTEXT(product);

static int copied(const void *source_args, size_t n, void *payload, size_t *payload_size)
{
    __builtin_memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

size_t popcount_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

size_t product_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int popcount_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    return copied(source_args, n, payload, payload_size);
}

int product_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    return copied(source_args, n, payload, payload_size);
}

uint32_t popcount_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    uint64_t rounds, bits = 0, *words = (uint64_t *)left;
    (void)target_args;
    if (payload_size != sizeof rounds)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&rounds, payload, sizeof rounds);
    for (uint64_t i = 0; i < LENGTH / 2; i++)
        words[i] = i * 0x9e3779b97f4a7c15;
    for (uint64_t round = 0; round < rounds; round++)
        for (uint32_t i = 0; i < LENGTH / 2; i++)
            bits += (uint64_t)__builtin_popcountll(words[i] ^ round % ROUNDS);
    return ifunc_answer(ctx, &bits, sizeof bits);
}

uint32_t product_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    uint64_t rounds, total = 0;
    (void)target_args;
    if (payload_size != sizeof rounds)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&rounds, payload, sizeof rounds);
    for (uint32_t i = 0; i < LENGTH; i++) {
        left[i] = (float)(i % 16);
        right[i] = (float)(i % 8);
    }
    for (uint64_t round = 0; round < rounds; round++) {
        /* All numbers are small integers: the sums are exact in every order. */
        float more = (float)(round % ROUNDS), sums[LANES] = {0}, sum = 0;
        for (uint32_t i = 0; i < LENGTH; i += LANES)
            for (uint32_t lane = 0; lane < LANES; lane++)
                sums[lane] += left[i + lane] * (right[i + lane] + more);
        for (uint32_t lane = 0; lane < LANES; lane++)
            sum += sums[lane];
        total += (uint64_t)sum;
    }
    return ifunc_answer(ctx, &total, sizeof total);
}
