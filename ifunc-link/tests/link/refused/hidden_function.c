// Declarations like these come from a header that hides everything.
#include <stddef.h>
#include <stdint.h>
#pragma GCC visibility push(hidden)
uint64_t host_add(uint64_t, uint64_t);
#pragma GCC visibility pop
uint32_t hidden_function_main(const uint8_t *payload, size_t n, uint64_t *out, void *ctx)
{
    return (uint32_t)host_add(payload[0], n);
}
