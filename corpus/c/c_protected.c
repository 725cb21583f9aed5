/* cflags: -fstack-protector-all */
/* features: stack protector; large frames */
#include "corpus.h"

NOINLINE static uint64_t large(const uint8_t *in, size_t n)
{
    uint64_t frame[9000], sum = 0;

    for (size_t i = 0; i < 9000; i++)
        frame[i] = i * 31 + (n ? in[i % n] : 0);
    for (size_t i = 9000; i-- > 0;)
        sum = sum * 7 + frame[i] % 1009;
    return sum;
}

NOINLINE static void reverse(char *text, size_t n)
{
    char copy[64];

    n = n < 64 ? n : 64;
    for (size_t i = 0; i < n; i++)
        copy[n - 1 - i] = text[i];
    memcpy(text, copy, n);
}

CASE(c_protected)
{
    char text[64];

    put(w, large(in, n));
    memset(text, 'x', sizeof text);
    memcpy(text, in, n < 40 ? n : 40);
    reverse(text, n % 64);
    put_bytes(w, text, sizeof text);
}
