/* features: SSE2 intrinsics; vector extensions */
#include "corpus.h"
#include <emmintrin.h>

typedef uint32_t lanes __attribute__((vector_size(16)));
typedef double pair_of_doubles __attribute__((vector_size(16)));

NOINLINE static lanes churn(lanes a, lanes b) { return (a ^ b << 3) + b * (lanes){3, 5, 7, 11}; }

CASE(c_vectors)
{
    lanes state = {(uint32_t)w->seed, 2, 3, 4};
    pair_of_doubles sums = {0.5, 1.5};
    __m128i sse = _mm_set_epi32(1, 2, 3, 4);

    for (size_t i = 0; i + 16 <= n; i += 16) {
        lanes value;
        memcpy(&value, in + i, 16);
        state = churn(state, value);
        sums = sums * 0.5 + (pair_of_doubles){(double)value[0], (double)value[3]};
        sse = _mm_add_epi16(_mm_unpacklo_epi8(_mm_loadu_si128((const void *)(in + i)), sse),
                            _mm_shuffle_epi32(sse, 0x4e));
        put(w, (uint64_t)_mm_movemask_epi8(sse));
    }
    put_bytes(w, &state, 16);
    put_bytes(w, &sums, 16);
    put_bytes(w, &sse, 16);
}
