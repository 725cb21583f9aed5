/* features: bit-fields; packed structs */
#include "corpus.h"

struct fields {
    unsigned a : 3;
    signed b : 5;
    unsigned : 4;
    unsigned c : 20;
    uint64_t d : 40;
    uint64_t e : 24;
};

struct __attribute__((packed)) wire {
    uint8_t kind;
    uint32_t length;
    uint16_t port;
    double value;
};

CASE(c_bitfields)
{
    struct fields f;
    struct wire wire, table[3];

    memset(&f, 0, sizeof f);
    memset(table, 0, sizeof table);
    for (size_t i = 0; i < words(n) && i < 150; i++) {
        uint64_t value = word(in, n, i);
        f.a += (unsigned)(value & 7);
        f.b = (signed)(value >> 3 & 15) - 8;
        f.c ^= (unsigned)(value >> 8) & 0xfffff;
        f.d = f.d * 5 + value;
        f.e--;
        put(w, f.a);
        put(w, (uint64_t)(int64_t)f.b);
        put(w, f.c);
        put(w, f.d);
        put(w, f.e);
        memcpy(&wire, in + i * 8 % (n > sizeof wire ? n - sizeof wire : 1), n >= sizeof wire ? sizeof wire : 0);
        if (n >= sizeof wire) {
            table[i % 3] = wire;
            table[i % 3].length += wire.port;
            put(w, table[i % 3].length);
            put_double(w, table[(i + 1) % 3].value);
        }
    }
    put(w, sizeof f + sizeof table);
}
