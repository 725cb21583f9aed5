/* features: errno; results through pointers */
#include "corpus.h"
#include <errno.h>
#include <stdlib.h>

CASE(c_errno)
{
    static const char *const numbers[] = {"17", "99999999999999999999999", "-99999999999999999999999", "0x7f", ""};

    for (size_t i = 0; i < 5; i++) {
        char *end;
        const char *text = numbers[(i + n) % 5];
        errno = 0;
        put(w, (uint64_t)strtol(text, &end, 16));
        put(w, (uint64_t)(errno == ERANGE));
        put(w, (uint64_t)(end - text));
    }
    errno = (int)n;
    w->calls = (uint64_t)errno + (n ? in[n - 1] : 0);
}
