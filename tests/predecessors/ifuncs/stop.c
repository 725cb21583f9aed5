/* Ends a server of the pointer chase. */
#include "pointer_chase.h"

size_t stop_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    return 1;
}

int stop_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    (void)source_args;
    (void)source_args_size;
    *(char *)payload = 0;
    *payload_size = 1;
    return 0;
}

void stop_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    ((struct shard *)target_args)->is_running = 0;
}
