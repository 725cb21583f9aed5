/* Ifuncs that do not end well, or need what not every process has. */
#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "tally.h"

#define PAYLOAD(name)                                                                                                  \
    size_t name##_payload_bound(void *source_args, size_t source_args_size)                                            \
    {                                                                                                                  \
        (void)source_args;                                                                                             \
        (void)source_args_size;                                                                                        \
        return 1;                                                                                                      \
    }                                                                                                                  \
    int name##_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)           \
    {                                                                                                                  \
        (void)source_args;                                                                                             \
        (void)source_args_size;                                                                                        \
        (void)payload_size;                                                                                            \
        *(char *)payload = 1;                                                                                          \
        return 0;                                                                                                      \
    }

PAYLOAD(aborts)
void aborts_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    ((struct tally *)target_args)->messages++;
    abort();
}

PAYLOAD(asserts)
void asserts_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    assert(((struct tally *)target_args)->mark == 0);
}

/* Not in the set of the C library that every target has: found in the process. */
PAYLOAD(process)
void process_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    ((struct tally *)target_args)->sum = (uint64_t)getpid();
}

extern int nobody_defines_this(void);

PAYLOAD(missing)
void missing_main(void *payload, size_t payload_size, void *target_args)
{
    (void)payload;
    (void)payload_size;
    ((struct tally *)target_args)->sum = (uint64_t)nobody_defines_this();
}

/* The target polls again inside of this invocation. */
struct nested {
    struct tally tally;
    int (*poll)(struct nested *);
    int result;
};

PAYLOAD(nests)
void nests_main(void *payload, size_t payload_size, void *target_args)
{
    struct nested *nested = (struct nested *)target_args;

    (void)payload;
    (void)payload_size;
    nested->tally.messages++;
    nested->result = nested->poll(nested);
    nested->tally.sum++;
}
