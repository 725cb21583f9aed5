/* `count` of `ifunc-bench-ifuncs`, as a function of a shared library. */
#include <stddef.h>
#include <stdint.h>

struct tally {
    uint64_t count;
    uint64_t sum;
};

/* Padding to the size of the image. The number after the mark makes each library distinct. */
const struct {
    uint64_t mark[2];
    uint64_t number;
    unsigned char more[MORE];
} filler = {{0x5eedc0de0dd50a4b, 0x1f0c5a1e7a57e9d3}, 1, {1}};

uint64_t count(const uint64_t *more, size_t size, struct tally *tally) {
    if (size != sizeof *more)
        return 0;
    tally->count += *more;
    return tally->count;
}
