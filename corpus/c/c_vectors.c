/* features: vector intrinsics; vector extensions */
#include "corpus.h"
#ifdef __aarch64__
#include <arm_neon.h>

typedef uint8x16_t bytes;

static bytes first_bytes(void) { return vreinterpretq_u8_u32((uint32x4_t){4, 3, 2, 1}); }
static bytes load(const uint8_t *from) { return vld1q_u8(from); }
static bytes step(bytes value, bytes state)
{
    uint16x8_t pairs = vreinterpretq_u16_u8(vzip1q_u8(value, state));
    return vreinterpretq_u8_u16(vaddq_u16(pairs, vreinterpretq_u16_u8(vextq_u8(state, state, 8))));
}
static unsigned signs(bytes state)
{
    bytes bits = vmulq_u8(vshrq_n_u8(state, 7), (bytes){1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128});
    return vaddv_u8(vget_low_u8(bits)) | (unsigned)vaddv_u8(vget_high_u8(bits)) << 8;
}
#else
#include <emmintrin.h>

typedef __m128i bytes;

static bytes first_bytes(void) { return _mm_set_epi32(1, 2, 3, 4); }
static bytes load(const uint8_t *from) { return _mm_loadu_si128((const void *)from); }
static bytes step(bytes value, bytes state)
{
    return _mm_add_epi16(_mm_unpacklo_epi8(value, state), _mm_shuffle_epi32(state, 0x4e));
}
static unsigned signs(bytes state) { return (unsigned)_mm_movemask_epi8(state); }
#endif

typedef uint32_t lanes __attribute__((vector_size(16)));
typedef double pair_of_doubles __attribute__((vector_size(16)));

NOINLINE static lanes churn(lanes a, lanes b) { return (a ^ b << 3) + b * (lanes){3, 5, 7, 11}; }

CASE(c_vectors)
{
    lanes state = {(uint32_t)w->seed, 2, 3, 4};
    pair_of_doubles sums = {0.5, 1.5};
    bytes mixed = first_bytes();

    for (size_t i = 0; i + 16 <= n; i += 16) {
        lanes value;
        memcpy(&value, in + i, 16);
        state = churn(state, value);
        sums = sums * 0.5 + (pair_of_doubles){(double)value[0], (double)value[3]};
        mixed = step(load(in + i), mixed);
        put(w, signs(mixed));
    }
    put_bytes(w, &state, 16);
    put_bytes(w, &sums, 16);
    put_bytes(w, &mixed, 16);
}
