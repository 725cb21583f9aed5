/* Writes a word of the payload into the word of the target. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

size_t result_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    return sizeof(uint64_t);
}

int result_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    if (source_args_size != sizeof(uint64_t))
        return -1;
    memcpy(payload, source_args, source_args_size);
    *payload_size = source_args_size;
    return 0;
}

void result_main(void *payload, size_t payload_size, void *target_args)
{
    if (payload_size == sizeof(uint64_t))
        memcpy(target_args, payload, payload_size);
}
