/* features: CRC-32; SHA-256 */
#include "corpus.h"

static uint32_t table[256];

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ 0xedb88320 : value >> 1;
        table[i] = value;
    }
}

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

#define ROTR(x, by) ((x) >> (by) | (x) << (32 - (by)))

static void block(uint32_t h[8], const uint8_t *in)
{
    uint32_t m[64], v[8];

    for (int i = 0; i < 16; i++)
        m[i] = (uint32_t)in[i * 4] << 24 | (uint32_t)in[i * 4 + 1] << 16 | (uint32_t)in[i * 4 + 2] << 8 | in[i * 4 + 3];
    for (int i = 16; i < 64; i++)
        m[i] = m[i - 16] + m[i - 7] + (ROTR(m[i - 15], 7) ^ ROTR(m[i - 15], 18) ^ m[i - 15] >> 3)
            + (ROTR(m[i - 2], 17) ^ ROTR(m[i - 2], 19) ^ m[i - 2] >> 10);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[7] + (ROTR(v[4], 6) ^ ROTR(v[4], 11) ^ ROTR(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + m[i];
        uint32_t b = (ROTR(v[0], 2) ^ ROTR(v[0], 13) ^ ROTR(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += a;
        v[0] = a + b;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

CASE(c_checksums)
{
    uint32_t crc = 0xffffffff, h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[128] = {0};
    size_t whole = n / 64 * 64, rest = n - whole, padded = rest < 56 ? 64 : 128;

    make_table();
    for (size_t i = 0; i < n; i++)
        crc = crc >> 8 ^ table[(uint8_t)crc ^ in[i]];
    put(w, ~crc);
    for (size_t at = 0; at < whole; at += 64)
        block(h, in + at);
    memcpy(last, in + whole, rest);
    last[rest] = 0x80;
    for (int i = 0; i < 8; i++)
        last[padded - 1 - (size_t)i] = (uint8_t)((uint64_t)n * 8 >> i * 8);
    for (size_t at = 0; at < padded; at += 64)
        block(h, last + at);
    put_bytes(w, h, sizeof h);
}
