/* Answers by itself: sends the message of its target, and makes UCX progress. */
#include "test_ifunc.h"

size_t p_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int p_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    unsigned char *bytes = (unsigned char *)payload;
    size_t n;

    (void)source_args;
    (void)source_args_size;
    for (n = 0; n < *payload_size; n++)
        bytes[n] = pattern(n);
    return 0;
}

void p_main(void *payload, size_t payload_size, void *target_args)
{
    const unsigned char *bytes = (const unsigned char *)payload;
    struct pong *pong = (struct pong *)target_args;
    size_t n;

    for (n = 0; n < payload_size; n++)
        pong->tally.sum += bytes[n];
    pong->tally.messages++;
    if (pong->flush) {
        /* The next message may overwrite the payload from here on. */
        ucp_ifunc_send_nbix(pong->ep, pong->msg, pong->heap, pong->rkey);
        pong->flush(pong->worker, pong->ep);
    }
}
