/* Prints where it runs. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

static int fib(int n)
{
    return n < 2 ? 1 : fib(n - 1) + fib(n - 2);
}

#ifdef PAPER
size_t hello_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    return (size_t)fib(17) + 42;
}

int hello_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    unsigned char *bytes = (unsigned char *)payload;
    size_t n;

    (void)source_args;
    (void)source_args_size;
    for (n = 0; n < payload_size; n++)
        bytes[n] = (unsigned char)n;
    return 0;
}
#else
size_t hello_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    return (size_t)fib(17) + 42;
}

int hello_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    unsigned char *bytes = (unsigned char *)payload;
    size_t n;

    (void)source_args;
    (void)source_args_size;
    for (n = 0; n < *payload_size; n++)
        bytes[n] = (unsigned char)n;
    return 0;
}
#endif

void hello_main(void *payload, size_t payload_size, void *target_args)
{
    printf("Hello: payload %p, payload_size %zu, target_args %p\n", payload, payload_size, target_args);
    printf("payload_size: fib(17) + 42 = %d\n", fib(17) + 42);
}
