/* An ifunc in C is three functions that share a name. Two run on the source and write the payload. The source sends
 * `c_add_main` to the target, which runs it on its own data. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A function of the target: an ifunc may call what the target exports. */
void announce(uint64_t counter);

/* Upper bound of the payload's size in bytes. */
size_t c_add_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    (void)n;
    return sizeof(uint64_t);
}

/* Writes the payload: here, a copy of the source's arguments. */
int c_add_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    if (n != sizeof(uint64_t))
        return -1;
    memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

/* Runs on the target. */
void c_add_main(void *payload, size_t payload_size, void *target_args)
{
    uint64_t delta, *counter = target_args;
    if (payload_size != sizeof delta)
        return;
    memcpy(&delta, payload, sizeof delta);
    *counter += delta;
    announce(*counter);
}
