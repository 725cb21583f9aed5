//#ExpectImport: snprintf
//#ExpectImport: qsort
// Variadic calls, callbacks, errno, what compilers write on their own.
#include "ifunc.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int compare(const void *a, const void *b)
{
    return *(const uint8_t *)a - *(const uint8_t *)b;
}
struct big { uint64_t words[40]; };
static NOINLINE struct big copy(struct big b) { b.words[3]++; return b; }
ENTRY(libc)
{
    char text[64];
    uint8_t sorted[32];
    struct big b;
    out[0] = (uint64_t)snprintf(text, sizeof text, "%d/%s/%.2f", payload[0], "text", payload[1] / 4.0);
    out[1] = (uint64_t)text[1];
    memcpy(sorted, payload, n < 32 ? n : 32);
    qsort(sorted, n < 32 ? n : 32, 1, compare);
    out[2] = sorted[0];
    memset(&b, payload[2], sizeof b);
    b = copy(b);
    out[3] = b.words[3];
    errno = 0;
    out[4] = strtoul("99999999999999999999999", 0, 10) == ~0ull && errno == ERANGE;
    uint64_t *zeroed = calloc(8, 8);
    out[5] = zeroed[7];
    free(zeroed);
    return 0;
}
