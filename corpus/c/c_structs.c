/* features: structs passed and returned by value; structs returned in memory; floats in structs */
#include "corpus.h"
#include "host/host.h"

struct mixed {
    float f;
    uint32_t i;
    double d;
};

struct tiny {
    uint8_t a;
    uint16_t b;
};

NOINLINE static struct mixed mix(struct mixed by, struct tiny tiny)
{
    struct mixed result = {by.f * 2 + tiny.a, by.i ^ tiny.b, by.d / 3};
    return result;
}

NOINLINE static struct tiny shrink(struct wide wide)
{
    struct tiny result = {(uint8_t)wide.words[5], (uint16_t)(wide.words[0] >> 3)};
    return result;
}

NOINLINE static struct wide spread(struct pair pair, struct tiny tiny)
{
    return (struct wide){{pair.a, pair.b, tiny.a, tiny.b, pair.a ^ pair.b, pair.a + tiny.b}};
}

CASE(c_structs)
{
    struct mixed mixed = {1.5f, 7, 2.25};

    for (size_t i = 0; i < words(n) && i < 100; i++) {
        struct pair pair = host_pair(word(in, n, i));
        struct wide wide = host_wide(spread(pair, (struct tiny){in[i], 300}), w->seed);
        struct tiny tiny = shrink(wide);
        struct wide copy = wide;
        mixed = mix(mixed, tiny);
        put_double(w, mixed.d);
        put_double(w, mixed.f);
        put(w, mixed.i);
        put_bytes(w, copy.words, sizeof copy.words);
        put(w, tiny.a + (uint64_t)tiny.b * 256);
    }
}
