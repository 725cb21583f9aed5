/* Calls a function of its target with numbers and a table of its own. The target's arguments are the function's address. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static const float constants[] = {3.141f, 2.718f, -1.1f};

size_t pure_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int pure_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    (void)source_args;
    (void)source_args_size;
    memset(payload, 0, *payload_size);
    *payload_size = 3;
    return 0;
}

void pure_main(void *payload, size_t payload_size, void *target_args)
{
    const unsigned char *start = (const unsigned char *)payload;
    uint8_t (*next)(uint8_t, const float *);
    uint8_t n = start[0];
    size_t i;

    memcpy(&next, &target_args, sizeof next);
    for (i = 0; i < payload_size; i++)
        n = next(n, &constants[i % (sizeof constants / sizeof *constants)]);
}
