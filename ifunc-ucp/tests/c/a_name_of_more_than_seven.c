/* Adds STEP to the sum: two builds of it differ in their code alone. */
#include "tally.h"

size_t a_name_of_more_than_seven_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    return 0;
}

int a_name_of_more_than_seven_payload_init(void *source_args, size_t source_args_size, void *payload,
                                           size_t *payload_size)
{
    (void)source_args;
    (void)source_args_size;
    (void)payload;
    *payload_size = 0;
    return 0;
}

void a_name_of_more_than_seven_main(void *payload, size_t payload_size, void *target_args)
{
    struct tally *tally = (struct tally *)target_args;

    (void)payload;
    (void)payload_size;
    tally->messages++;
    tally->sum += STEP;
}
