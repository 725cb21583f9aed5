/* features: unions; anonymous members; tagged values */
#include "corpus.h"

struct value {
    enum { WHOLE, REAL, BYTES, LIST } kind;
    union {
        uint64_t whole;
        double real;
        uint8_t bytes[8];
        struct {
            const struct value *first;
            uint32_t count;
        };
    };
};

static uint64_t weigh(const struct value *value)
{
    uint64_t sum = 0;

    switch (value->kind) {
    case WHOLE: return value->whole * 3;
    case REAL: return (uint64_t)(value->real * 16);
    case BYTES:
        for (int i = 0; i < 8; i++)
            sum = sum << 3 ^ value->bytes[i];
        return sum;
    case LIST:
        for (uint32_t i = 0; i < value->count; i++)
            sum = sum * 7 + weigh(&value->first[i]);
        return sum;
    }
    return 1;
}

CASE(c_unions)
{
    struct value values[5] = {{.kind = WHOLE, .whole = w->seed}, {.kind = REAL, .real = 2.5}, {.kind = BYTES}};

    for (size_t i = 0; i < words(n) && i < 200; i++) {
        uint64_t bits = word(in, n, i);
        values[2].whole = bits;
        values[1].real = (double)(bits >> 40);
        values[3] = (struct value){.kind = LIST, .first = values, .count = 3};
        values[4] = (struct value){.kind = LIST, .first = values + 1, .count = (uint32_t)(bits % 4)};
        put(w, weigh(&values[4]));
        put(w, weigh(&values[i % 4]));
        values[0].whole += bits;
    }
}
