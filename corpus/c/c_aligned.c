/* features: aligned data; aligned locals */
#include "corpus.h"

static _Alignas(64) uint64_t line[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static _Alignas(32) const uint8_t constants[32] = "every second letter of this text";
static _Alignas(128) uint8_t zeroed[256];

CASE(c_aligned)
{
    _Alignas(64) uint64_t local[16];

    memset(local, (int)n, sizeof local);
    memset(zeroed, 0, sizeof zeroed);
    for (int i = 0; i < 8; i++)
        line[i] = (uint64_t)i + 1;
    for (size_t i = 0; i < words(n); i++) {
        line[i % 8] ^= word(in, n, i);
        local[i % 16] += line[(i + 1) % 8];
        zeroed[i % 256] += constants[i % 32];
    }
    put(w, (uintptr_t)line % 64 + (uintptr_t)constants % 32 + (uintptr_t)zeroed % 128 + (uintptr_t)local % 64);
    put_bytes(w, line, sizeof line);
    put_bytes(w, local, sizeof local);
    put_bytes(w, zeroed, sizeof zeroed);
}
