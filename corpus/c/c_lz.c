/* features: LZ compression */
#include "corpus.h"

static uint16_t heads[4096];

static size_t pack(const uint8_t *in, size_t n, uint8_t *out, size_t capacity)
{
    size_t at = 0, to = 0;

    memset(heads, 0, sizeof heads);
    while (at < n && to + 4 < capacity) {
        size_t length = 0, from = 0;
        if (at + 4 < n) {
            uint32_t four;
            memcpy(&four, in + at, 4);
            uint16_t *head = &heads[four * 2654435761u >> 20];
            from = *head;
            *head = (uint16_t)at;
            while (from < at && at + length < n && length < 255 && in[from + length] == in[at + length])
                length++;
        }
        if (length >= 4) {
            out[to++] = 1;
            out[to++] = (uint8_t)length;
            out[to++] = (uint8_t)(at - from);
            out[to++] = (uint8_t)((at - from) >> 8);
            at += length;
        } else {
            out[to++] = 0;
            out[to++] = in[at++];
        }
    }
    return to;
}

static size_t unpack(const uint8_t *in, size_t n, uint8_t *out)
{
    size_t to = 0;

    for (size_t at = 0; at < n;) {
        if (in[at] == 0) {
            out[to++] = in[at + 1];
            at += 2;
        } else {
            size_t from = to - (in[at + 2] | (size_t)in[at + 3] << 8);
            for (uint8_t length = in[at + 1]; length > 0; length--)
                out[to++] = out[from++];
            at += 4;
        }
    }
    return to;
}

CASE(c_lz)
{
    uint8_t packed[8192], back[6000];
    size_t length = n < 4000 ? n : 4000, size = pack(in, length, packed, sizeof packed);

    put(w, size);
    put_bytes(w, packed, size);
    put(w, unpack(packed, size, back));
    put(w, memcmp(back, in, length) == 0);
}
