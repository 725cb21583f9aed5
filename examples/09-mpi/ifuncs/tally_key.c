/* Counts a key in the table of its rank. */
#include <ifunc.h>

#include "../table.h"

IFUNC_PAYLOAD_BOUND(tally_key);
IFUNC_MAIN_WITH_CONTEXT(tally_key);

size_t tally_key_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    (void)n;
    return sizeof(uint64_t);
}

int tally_key_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    if (n != sizeof(uint64_t))
        return -1;
    __builtin_memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

uint32_t tally_key_main(void *payload, size_t payload_size, void *target_args, struct ifunc_context *ctx)
{
    uint64_t key;

    (void)ctx;
    if (payload_size != sizeof key)
        return IFUNC_BAD_PAYLOAD;
    __builtin_memcpy(&key, payload, sizeof key);
    count_key(target_args, key);
    return IFUNC_OK;
}
