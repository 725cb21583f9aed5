/* Counts its invocations, and sums the bytes that arrive. */
#include "test_ifunc.h"

#ifdef PAPER
size_t b_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int b_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    unsigned char *bytes = (unsigned char *)payload;
    size_t n;

    (void)source_args;
    (void)source_args_size;
    for (n = 0; n < payload_size; n++)
        bytes[n] = pattern(n);
    return 0;
}
#else
size_t b_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int b_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    unsigned char *bytes = (unsigned char *)payload;
    size_t n;

    (void)source_args;
    (void)source_args_size;
    for (n = 0; n < *payload_size; n++)
        bytes[n] = pattern(n);
    return 0;
}
#endif

void b_main(void *payload, size_t payload_size, void *target_args)
{
    const unsigned char *bytes = (const unsigned char *)payload;
    struct tally *tally = (struct tally *)target_args;
    uint64_t sum = 0;
    size_t n;

    for (n = 0; n < payload_size; n++)
        sum += bytes[n];
    tally->messages++;
    tally->sum += sum;
}
