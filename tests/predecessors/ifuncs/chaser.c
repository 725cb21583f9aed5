/* Follows words from server to server: it sends itself to the one that has the next word. */
#include <string.h>

#include "pointer_chase.h"

size_t chaser_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return source_args_size;
}

int chaser_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    if (source_args_size != sizeof(struct chase))
        return -1;
    memcpy(payload, source_args, source_args_size);
    *payload_size = source_args_size;
    return 0;
}

void chaser_main(void *payload, size_t payload_size, void *target_args)
{
    struct shard *shard = (struct shard *)target_args;
    struct chase chase;
    unsigned to;
    void *out;

    (void)payload_size;
    memcpy(&chase, payload, sizeof chase);
    to = follow(shard, &chase);
    if (to) {
        ucp_ifunc_msg_get_payload_ptr(&shard->chaser, &out, NULL);
        memcpy(out, &chase, sizeof chase);
        ucp_ifunc_send_nbix(shard->eps[to], shard->chaser, shard->heaps[to], shard->rkeys[to]);
    } else {
        to = (unsigned)chase.asker;
        ucp_ifunc_msg_get_payload_ptr(&shard->result, &out, NULL);
        memcpy(out, &chase.at, sizeof chase.at);
        ucp_ifunc_send_nbix(shard->eps[to], shard->result, shard->heaps[to], shard->rkeys[to]);
    }
    shard->flush(shard->worker, shard->eps[to]);
}
