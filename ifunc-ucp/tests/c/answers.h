/* The target arguments of `answers`, which sends a message by itself. */
#ifndef ANSWERS_H
#define ANSWERS_H

#include <ucp/api/ucp.h>

#include "tally.h"

struct answers {
    struct tally tally;
    /* Where the answer goes. */
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t remote_addr;
    ucp_ifunc_msg_t answer;
    /* A function of the host that makes the worker progress, and polls for what arrived. */
    void (*progress)(struct answers *answers);
};

#endif
