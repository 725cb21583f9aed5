/* What the servers of the pointer chase lend to the chaser. */
#ifndef POINTER_CHASE_H
#define POINTER_CHASE_H

#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

#define MOST_SERVERS 32

/* A chase: also the payload of `chaser` and the header of the active message. */
struct chase {
    uint64_t left;
    uint64_t at;
    /* Who asked. */
    uint64_t asker;
};

struct shard {
    /* The words of this server: `first` and those that follow. Each is the place of the next one. */
    const uint64_t *words;
    uint64_t first;
    uint64_t size;
    /* Of all processes; the servers are 1, 2 and so on. */
    const ucp_ep_h *eps;
    const ucp_rkey_h *rkeys;
    const uint64_t *heaps;
    ucp_worker_h worker;
    /* What the chaser sends; it writes their payloads. */
    ucp_ifunc_msg_t chaser;
    ucp_ifunc_msg_t result;
    ucs_status_t (*flush)(ucp_worker_h, ucp_ep_h);
    int is_running;
};

/* Follows the chase as long as it stays in this shard. Returns 0 at its end, or the server that has the next word. */
static inline unsigned follow(const struct shard *shard, struct chase *chase)
{
    while (chase->left && chase->at - shard->first < shard->size) {
        chase->at = shard->words[chase->at - shard->first];
        chase->left--;
    }
    return chase->left ? (unsigned)(chase->at / shard->size) + 1 : 0;
}

#endif
