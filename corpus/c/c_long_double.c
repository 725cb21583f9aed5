/* features: long double */
/* differs: `long double` has 64 bits of precision on x86-64, and 113 on AArch64 */
#include "corpus.h"
#include <stdio.h>

NOINLINE static long double horner(const long double *c, int n, long double x)
{
    long double sum = 0;
    while (n-- > 0)
        sum = sum * x + c[n];
    return sum;
}

CASE(c_long_double)
{
    static const long double c[] = {1.0L, -0.5L, 1.0L / 3, 0.1L, 1e-300L};
    long double product = 1;
    char text[64];

    for (size_t i = 0; i < words(n) && i < 100; i++) {
        uint64_t value = word(in, n, i);
        long double x = (long double)value / 18446744073709551615.0L;
        long double y = horner(c, 5, x);
        product = product * (y + 1.25L) - (long double)(int64_t)value / 1e19L;
        put_double(w, (double)product);
        put(w, (uint64_t)(x * 1e18L));
        put(w, y > x);
    }
    snprintf(text, sizeof text, "%.18Lg", product);
    put_text(w, text);
}
