/* features: complex numbers */
/* differs: libgcc divides complex numbers, by fused multiply-add on AArch64 */
#include "corpus.h"
#include <complex.h>

CASE(c_complex)
{
    double complex z = 1.0 + 0.25 * I;
    float complex f = 0.5f - 2.0f * I;

    for (size_t i = 0; i < words(n) && i < 200; i++) {
        double x = (double)(word(in, n, i) % 1000) / 500 - 1;
        z = z * (x + 0.5 * I) + conj(z) / (2.0 - x * I);
        f = f * f / (float)(x + 3) + (float)x;
        put_double(w, creal(z));
        put_double(w, cimag(z));
        put_double(w, crealf(f));
        put_double(w, cimagf(f));
    }
}
