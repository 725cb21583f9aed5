/* Answers as many bytes as it is told to, each word being the number of its kibibyte. */
#include <ifunc.h>

IFUNC_PAYLOAD_BOUND(t_c_fill);
IFUNC_MAIN_WITH_CONTEXT(t_c_fill);

size_t t_c_fill_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_fill_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    __builtin_memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

uint32_t t_c_fill_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    (void)target_args;
    uint64_t len;
    if (payload_size != sizeof len)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&len, payload, sizeof len);
    if (len > ifunc_max_answer(ctx))
        return ifunc_answer(ctx, "too long", 8);
    uint8_t *answer = ifunc_answer_memory(ctx, len);
    if (!answer)
        return IFUNC_BAD_ANSWER;
    for (uint64_t at = 0; at < len; at++)
        answer[at] = (uint8_t)(at / 1024 >> 8 * (at % 8));
    return IFUNC_OK;
}
