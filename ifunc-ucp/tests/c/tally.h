/* What the target of these tests keeps. */
#ifndef TALLY_H
#define TALLY_H

#include <stddef.h>
#include <stdint.h>

#define TALLY_MARK 0x7a11f00d

struct tally {
    uint64_t mark;
    uint64_t messages;
    uint64_t sum;
    /* The address of the last payload. */
    const void *payload;
};

#endif
