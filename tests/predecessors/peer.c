#define _GNU_SOURCE 1
#include "peer.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

void check(int holds, const char *what)
{
    if (!holds) {
        fflush(stdout);
        fprintf(stderr, "error: %s (errno: %s)\n", what, strerror(errno));
        exit(1);
    }
}

void must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fflush(stdout);
        fprintf(stderr, "error: %s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

void peer_open(struct peer *self, size_t heap_size)
{
    ucp_params_t params;
    ucp_config_t *config;
    ucp_worker_params_t worker;
    ucp_mem_map_params_t map;
    ucp_mem_attr_t attributes;

    must(ucp_config_read(NULL, NULL, &config), "the configuration");
    memset(&params, 0, sizeof params);
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM;
    must(ucp_init(&params, config, &self->context), "ucp_init");
    ucp_config_release(config);

    memset(&worker, 0, sizeof worker);
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    must(ucp_worker_create(self->context, &worker, &self->worker), "ucp_worker_create");

    memset(&map, 0, sizeof map);
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    map.length = heap_size;
    map.flags = UCP_MEM_MAP_ALLOCATE;
    must(ucp_mem_map(self->context, &map, &self->memory), "ucp_mem_map");
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    must(ucp_mem_query(self->memory, &attributes), "ucp_mem_query");
    self->heap = (unsigned char *)attributes.address;
    self->heap_size = heap_size;
    memset(self->heap, 0, heap_size);
}

void peer_close(struct peer *self)
{
    must(ucp_mem_unmap(self->context, self->memory), "ucp_mem_unmap");
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

void peer_card(struct peer *self, struct card *card)
{
    ucp_address_t *address;
    size_t address_size, rkey_size;
    void *rkey;

    memset(card, 0, sizeof *card);
    must(ucp_worker_get_address(self->worker, &address, &address_size), "ucp_worker_get_address");
    must(ucp_rkey_pack(self->context, self->memory, &rkey, &rkey_size), "ucp_rkey_pack");
    check(address_size <= sizeof card->address && rkey_size <= sizeof card->rkey, "the card is too small");
    card->heap = (uint64_t)(uintptr_t)self->heap;
    card->address_size = address_size;
    card->rkey_size = rkey_size;
    memcpy(card->address, address, address_size);
    memcpy(card->rkey, rkey, rkey_size);
    ucp_worker_release_address(self->worker, address);
    ucp_rkey_buffer_release(rkey);
}

void peer_connect(struct peer *self, const struct card *card, struct remote *other)
{
    ucp_ep_params_t params;

    memset(&params, 0, sizeof params);
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = (const ucp_address_t *)card->address;
    must(ucp_ep_create(self->worker, &params, &other->ep), "ucp_ep_create");
    must(ucp_ep_rkey_unpack(other->ep, card->rkey, &other->rkey), "ucp_ep_rkey_unpack");
    other->heap = card->heap;
}

static ucs_status_t finish(ucp_worker_h worker, ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (request == NULL)
        return UCS_OK;
    if (UCS_PTR_IS_ERR(request))
        return UCS_PTR_STATUS(request);
    do {
        ucp_worker_progress(worker);
        status = ucp_request_check_status(request);
    } while (status == UCS_INPROGRESS);
    ucp_request_free(request);
    return status;
}

void peer_disconnect(struct peer *self, struct remote *other)
{
    ucp_request_param_t param;

    ucp_rkey_destroy(other->rkey);
    memset(&param, 0, sizeof param);
    (void)finish(self->worker, ucp_ep_close_nbx(other->ep, &param));
}

ucs_status_t peer_flush(ucp_worker_h worker, ucp_ep_h ep)
{
    ucp_request_param_t param;

    memset(&param, 0, sizeof param);
    return finish(worker, ucp_ep_flush_nbx(ep, &param));
}

static const char *port(void)
{
    const char *chosen = getenv("PEER_PORT");

    return chosen ? chosen : "13337";
}

int wait_for_caller(void)
{
    struct sockaddr_in any;
    int listener, caller, yes = 1;

    memset(&any, 0, sizeof any);
    any.sin_family = AF_INET;
    any.sin_port = htons((uint16_t)atoi(port()));
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    check(listener >= 0, "socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    check(bind(listener, (struct sockaddr *)&any, sizeof any) == 0, "bind");
    check(listen(listener, 1) == 0, "listen");
    caller = accept(listener, NULL, NULL);
    check(caller >= 0, "accept");
    close(listener);
    return caller;
}

int call(const char *host)
{
    struct addrinfo hints, *found;
    struct timespec pause;
    int caller, tries;

    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    check(getaddrinfo(host, port(), &hints, &found) == 0, "the server's name");
    memset(&pause, 0, sizeof pause);
    pause.tv_nsec = 20000000;
    /* The servers may start later: a minute. */
    for (tries = 0; tries < 3000; tries++) {
        caller = socket(AF_INET, SOCK_STREAM, 0);
        check(caller >= 0, "socket");
        if (connect(caller, found->ai_addr, found->ai_addrlen) == 0) {
            freeaddrinfo(found);
            return caller;
        }
        close(caller);
        nanosleep(&pause, NULL);
    }
    check(0, "the server does not answer");
    return -1;
}

void tell(int socket, const void *bytes, size_t size)
{
    const char *at = (const char *)bytes;

    while (size) {
        ssize_t n = send(socket, at, size, MSG_NOSIGNAL);
        check(n > 0, "send");
        at += n;
        size -= (size_t)n;
    }
}

void hear(int socket, void *bytes, size_t size)
{
    check(recv(socket, bytes, size, MSG_WAITALL) == (ssize_t)size, "the other side has ended");
}

int has_heard(int socket)
{
    char byte;
    ssize_t n = recv(socket, &byte, 1, MSG_DONTWAIT);

    check(n == 1 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)), "the other side has ended");
    return n == 1;
}

void meet(int socket, struct peer *self)
{
    tell(socket, "*", 1);
    while (!has_heard(socket))
        ucp_worker_progress(self->worker);
}

void rest(size_t idle)
{
    if (idle >= 64)
        sched_yield();
}

double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}
