/* features: floating point; functions of libm */
#include "corpus.h"
#include <math.h>

CASE(c_math)
{
    float single = 1;

    for (size_t i = 0; i < words(n) && i < 80; i++) {
        uint64_t value = word(in, n, i);
        double x = (double)(value % 100000) / 997 - 20;
        put_double(w, sqrt(x * x + 1));
        put_double(w, sin(x) + cos(x / 2));
        put_double(w, pow(fabs(x), 1.3));
        put_double(w, exp(x / 5) - log(fabs(x) + 1));
        put_double(w, fmod(x, 0.7));
        put_double(w, floor(x) + ceil(x) + trunc(x) + round(x));
        put_double(w, atan2(x, 3));
        put(w, (uint64_t)lround(x * 10));
        put(w, (uint64_t)(int64_t)x);
        put(w, isnan(x / (x - x)) != 0);
        single = sqrtf(single * (float)x * (float)x + 0.5f);
        put_double(w, single);
        put_double(w, (double)(uint64_t)value);
    }
}
