/* What the target of `test_ifunc` lends to its ifuncs. */
#ifndef TEST_IFUNC_H
#define TEST_IFUNC_H

#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

/* `b` counts, and sums what it was sent. */
struct tally {
    uint64_t messages;
    uint64_t sum;
};

/* `p` answers by itself: it sends a message of the target's. */
struct pong {
    struct tally tally;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t heap;
    ucp_ifunc_msg_t msg;
    ucs_status_t (*flush)(ucp_worker_h, ucp_ep_h);
};

/* The bytes of a payload of `b` and `p`. */
static inline unsigned char pattern(size_t at)
{
    return (unsigned char)(at * 31 + 7);
}

#endif
