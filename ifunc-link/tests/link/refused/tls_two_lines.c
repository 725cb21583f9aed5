// One function, several lines: each is shown.
#include "../ifunc.h"
static __thread volatile uint64_t first, second;
ENTRY(tls_two_lines)
{
    first += n;
    second += payload[0];
    return (uint32_t)(first + second);
}
