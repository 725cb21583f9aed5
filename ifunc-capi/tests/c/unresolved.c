/* An ifunc whose library cannot be opened: its `payload_init` uses what nothing defines. */
#include <ifunc.h>

IFUNC_PAYLOAD_BOUND(unresolved);
IFUNC_MAIN(unresolved);
int nowhere_to_be_found(void);

size_t unresolved_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}
int unresolved_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    (void)source_args, (void)n, (void)payload, (void)payload_size;
    return nowhere_to_be_found();
}
void unresolved_main(void *payload, size_t n, void *target_args)
{
    (void)payload, (void)n, (void)target_args;
}
