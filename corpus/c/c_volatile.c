/* features: volatile; restrict; pointers to pointers */
#include "corpus.h"

static volatile uint32_t flag = 3;
static volatile uint64_t device[4];

NOINLINE static void saxpy(float *restrict y, const float *restrict x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a * x[i] + y[i];
}

NOINLINE static void redirect(uint64_t **where, uint64_t *a, uint64_t *b) { *where = **where % 2 ? a : b; }

CASE(c_volatile)
{
    float x[64], y[64];
    uint64_t a = 1, b = 2, *at = &a;

    flag = 3;
    for (int i = 0; i < 4; i++)
        device[i] = 0;
    for (size_t i = 0; i < 64; i++) {
        x[i] = n ? (float)in[i % n] / 4 : 1;
        y[i] = (float)i;
    }
    saxpy(y, x, 0.75f, 64);
    for (size_t i = 0; i < 64; i++)
        put_double(w, y[i]);
    for (size_t i = 0; i < words(n); i++) {
        flag = flag * 5 + 1;
        device[flag % 4] += word(in, n, i);
        *at += device[i % 4];
        redirect(&at, &a, &b);
    }
    put(w, flag);
    put(w, device[0] ^ device[1] ^ device[2] ^ device[3]);
    put(w, a);
    put(w, b);
}
