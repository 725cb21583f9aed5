/* Counts messages and sums their bytes. A payload is a copy of the source arguments. */
#include <string.h>

#include "tally.h"

#ifdef PAPER
size_t tally_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int tally_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    if (source_args_size && *(unsigned char *)source_args == 0xff)
        return -1;
    memcpy(payload, source_args, payload_size);
    return 0;
}
#else
size_t tally_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return 2 * source_args_size;
}

int tally_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    if (source_args_size && *(unsigned char *)source_args == 0xff)
        return -1;
    memcpy(payload, source_args, source_args_size);
    *payload_size = source_args_size;
    return 0;
}
#endif

void tally_main(void *payload, size_t payload_size, void *target_args)
{
    const unsigned char *bytes = (const unsigned char *)payload;
    struct tally *tally = (struct tally *)target_args;
    size_t n;

    tally->messages++;
    tally->payload = payload;
    for (n = 0; n < payload_size; n++)
        tally->sum += bytes[n];
}
