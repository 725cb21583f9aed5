/* Needs zlib on the target. */
#include <string.h>
#include <zlib.h>

#include "tally.h"

size_t checksum_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int checksum_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    memcpy(payload, source_args, source_args_size);
    *payload_size = source_args_size;
    return 0;
}

void checksum_main(void *payload, size_t payload_size, void *target_args)
{
    ((struct tally *)target_args)->sum = crc32(0, (const Bytef *)payload, (uInt)payload_size);
}
