/* An ifunc in C is three functions that share a name. Two run on the source and write the payload. The source sends
 * `multiply_main` to the target, which runs it on its own data. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Upper bound of the payload's size in bytes. */
size_t multiply_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    (void)n;
    return sizeof(uint64_t);
}

/* Writes the payload: here, a copy of the source's arguments. */
int multiply_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    if (n != sizeof(uint64_t))
        return -1;
    memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

/* Runs on the target; `target_args` points to the target's counter. */
void multiply_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t factor, *counter = target_args;
    if (payload_size != sizeof factor)
        return;
    memcpy(&factor, payload, sizeof factor);
    *counter *= factor;
}
