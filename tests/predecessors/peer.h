/* What a program on UCX has beside UCX: a socket over which processes meet, and memory into which the others put. The programs of
 * this folder are C and C++ at the same time. */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This process. */
struct peer {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    unsigned char *heap;
    size_t heap_size;
};

/* What others need of a process to put into its heap. */
struct card {
    uint64_t heap;
    uint64_t address_size;
    uint64_t rkey_size;
    unsigned char address[4096];
    unsigned char rkey[4096];
};

/* Another process. */
struct remote {
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    uint64_t heap;
};

/* Ends the process with a message if `status` is an error. */
void must(ucs_status_t status, const char *what);
/* Ends the process with a message unless `holds`. */
void check(int holds, const char *what);

void peer_open(struct peer *self, size_t heap_size);
void peer_close(struct peer *self);
void peer_card(struct peer *self, struct card *card);
void peer_connect(struct peer *self, const struct card *card, struct remote *other);
void peer_disconnect(struct peer *self, struct remote *other);
/* Waits until all that was sent over `ep` has arrived. */
ucs_status_t peer_flush(ucp_worker_h worker, ucp_ep_h ep);

/* The socket: `wait_for_caller` listens on port 13337, or on that of PEER_PORT. */
int wait_for_caller(void);
int call(const char *host);
void tell(int socket, const void *bytes, size_t size);
void hear(int socket, void *bytes, size_t size);
/* Whether a byte has arrived, which this takes. */
int has_heard(int socket);
/* Returns when both sides have called it. The worker makes progress meanwhile. */
void meet(int socket, struct peer *self);

/* Call it when a poll found nothing, with how often it did so without a break: there may be more processes than cores. */
void rest(size_t idle);

double seconds_now(void);

#ifdef __cplusplus
}
#endif

#endif
