/* One server and one client, which send ifuncs to each other by puts into each other's heap.
 *
 *     server: test_ifunc [-p] [-n MESSAGES] [-l LARGEST_LOG2] [-h HEAP_LOG2]
 *     client: test_ifunc [-p] [-n MESSAGES] [-l LARGEST_LOG2] [-h HEAP_LOG2] HOST
 *
 * -p: the worker makes progress while a process waits for a message.
 *
 * Single invocations first, of code in libraries and in memory; then the rate at which the server takes messages of 1 byte to 1 MiB through a ring of slots, and
 * half of a round trip, both with the code in each message. */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"
#include "test_ifunc.h"
#include "variant.h"

static struct peer self;
static struct remote other;
static int sock;
static size_t messages = 2000;
static int largest_log2 = 20;
static int heap_log2 = 26;

/* The space that the programs of each form leave for a message with its code. */
static size_t slot_size(size_t payload)
{
#ifdef PAPER
    size_t least = 1024, size = 2 * payload;
#else
    size_t least = 16384, size = payload + 8192;
#endif
    return size < least ? least : size;
}

/* Fewer of those that take longer. */
static size_t rounds(size_t payload)
{
    return payload <= 16384 ? messages : messages / 20 + 1;
}

static ucs_status_t poll_until(void *at, size_t size, void *args)
{
    ucs_status_t status;

    do {
        status = poll_for(self.context, at, size, args, self.worker);
    } while (status == UCS_ERR_NO_MESSAGE);
    return status;
}

static void send_to(ucp_ifunc_msg_t msg, size_t offset)
{
    ucs_status_t status = ucp_ifunc_send_nbix(other.ep, msg, other.heap + offset, other.rkey);

    check(status == UCS_OK || status == UCS_INPROGRESS, "ucp_ifunc_send_nbix");
}

static ucp_ifunc_msg_t message(ucp_ifunc_h ifunc, void *args, size_t size)
{
    ucp_ifunc_msg_t msg;

    must(ucp_ifunc_msg_create(ifunc, args, size, &msg), "ucp_ifunc_msg_create");
    return msg;
}

static ucp_ifunc_h registered(const char *name, int pure)
{
    ucp_ifunc_h ifunc;

    must(register_named(self.context, name, pure, &ifunc), name);
    return ifunc;
}

/* Sends one message of an ifunc, which the source forgets afterwards. */
static void send_and_forget(ucp_ifunc_h ifunc, const char *name, void *args, size_t size)
{
    ucp_ifunc_msg_t msg = message(ifunc, args, size);

    printf("Sending %s, %zu bytes\n", name, msg.frame_size);
    send_to(msg, 0);
    must(peer_flush(self.worker, other.ep), "flush");
    ucp_ifunc_msg_free(msg);
    ucp_deregister_ifunc(self.context, ifunc);
    meet(sock, &self);
}

static void send_once(const char *name, int pure, void *args, size_t size)
{
    ucp_ifunc_h ifunc = registered(name, pure), again = NULL;

    /* A name is registered once; the second time it is the same handle. */
    must(register_named(self.context, name, pure, &again), "the second registration");
    check(ifunc == again, "the second registration has another handle");
    send_and_forget(ifunc, name, args, size);
}

#ifdef THREECHAINS
#define MOST_CODE ((size_t)1 << 20)

/* Registers code that this program has in memory, as a front end does that makes it there: for two architectures, of which the library takes
 * its own. Bitcode is refused by status. */
static ucp_ifunc_h registered_from_memory(const char *name)
{
    const char *folder = getenv("UCX_IFUNC_LIB_DIR");
    char x86_64[] = "x86_64-pc-linux-gnu", aarch64[] = "aarch64-unknown-linux-gnu", libc[] = "libc.so.6", text[16], path[4096];
    char bitcode[] = "BC\xc0\xde, and no bitcode";
    char *deps[1];
    ucp_ifunc_reg_param_t param;
    ucp_llvm_bc_t code[2];
    ucp_ifunc_h ifunc;
    FILE *file;
    void *bytes = malloc(MOST_CODE);
    size_t size;

    check(folder && bytes, "UCX_IFUNC_LIB_DIR and malloc");
    snprintf(path, sizeof path, "%s/%s.so", folder, name);
    file = fopen(path, "rb");
    check(file != NULL, path);
    size = fread(bytes, 1, MOST_CODE, file);
    check(size < MOST_CODE, "a library is too large");
    fclose(file);

    memset(&param, 0, sizeof param);
    strcpy(text, name);
    param.name = text;
    deps[0] = libc;
    code[0].triple = x86_64;
    code[1].triple = aarch64;
    code[0].bc = code[1].bc = bitcode;
    code[0].size = code[1].size = sizeof bitcode;
    check(ucp_register_ifunc_im(self.context, param, code, 2, deps, 1, &ifunc) == UCS_ERR_UNSUPPORTED, "bitcode");
    /* On each architecture, the other one's code is none of ours. */
#ifdef __x86_64__
    code[0].bc = bytes;
    code[0].size = (uint32_t)size;
#else
    code[1].bc = bytes;
    code[1].size = (uint32_t)size;
#endif
    must(ucp_register_ifunc_im(self.context, param, code, 2, deps, 1, &ifunc), "ucp_register_ifunc_im");
    free(bytes);
    return ifunc;
}
#endif

#ifndef PAPER
/* The target's own function, whose address `pure` finds in its arguments. */
static uint8_t next_number(uint8_t n, const float *f)
{
    printf("Received n = %d, f = %.3f\n", n, (double)*f);
    return (uint8_t)(n + 1);
}
#endif

static void single_invocations(int is_server)
{
    unsigned n;
    size_t size = 1u << 22;
    unsigned char *data;

    if (is_server) {
        must(poll_until(self.heap, self.heap_size, (void *)(uintptr_t)0xdeadbeef), "hello");
        meet(sock, &self);
#ifndef PAPER
        {
            /* A function's address and the arguments' are both pointers here. */
            uint8_t (*function)(uint8_t, const float *) = next_number;
            void *args;

            memcpy(&args, &function, sizeof args);
            must(poll_until(self.heap, self.heap_size, args), "pure");
        }
        meet(sock, &self);
#endif
        must(poll_until(self.heap, self.heap_size, NULL), "multi");
        meet(sock, &self);
#ifdef THREECHAINS
        must(poll_until(self.heap, self.heap_size, NULL), "hello from memory");
        meet(sock, &self);
#endif
        return;
    }
    send_once("hello", 0, NULL, 0);
#ifndef PAPER
    send_once("pure", 1, NULL, 65536);
#endif
    data = (unsigned char *)malloc(size);
    check(data != NULL, "malloc");
    srand(777);
    for (n = 0; n < size; n++)
        data[n] = (unsigned char)((unsigned)rand() >> 8 & 15);
    send_once("multi", 0, data, size);
    free(data);
#ifdef THREECHAINS
    send_and_forget(registered_from_memory("hello"), "hello from memory", NULL, 0);
#endif
}

static void serve_throughput(void)
{
    int log2;

    for (log2 = 0; log2 <= largest_log2; log2++) {
        size_t payload = (size_t)1 << log2, slot = slot_size(payload);
        /* The last slot has the signal. */
        size_t slots = self.heap_size / slot - 1, all = rounds(payload), i;
        volatile unsigned char *signal = self.heap + self.heap_size - 1;
        struct tally tally;
        double start;

        memset(&tally, 0, sizeof tally);
        /* Whatever an idle slot holds, it is no message. */
        memset(self.heap, log2 % 2 ? 42 : 0, self.heap_size);
        *signal = 0x3c;
        meet(sock, &self);
        start = seconds_now();
        for (i = 0; i < all; i++) {
            must(poll_until(self.heap + i % slots * slot, slot, &tally), "b");
            if ((i + 1) % slots == 0) {
                ucs_status_t status = ucp_put_nbi(other.ep, self.heap + self.heap_size - 1, 1,
                                                  other.heap + self.heap_size - 1, other.rkey);
                check(status == UCS_OK || status == UCS_INPROGRESS, "ucp_put_nbi");
                must(peer_flush(self.worker, other.ep), "flush");
            }
        }
        printf("%7zu: %.3e messages/s\n", payload, (double)all / (seconds_now() - start));
        tell(sock, &tally, sizeof tally);
        meet(sock, &self);
    }
}

static uint64_t sum_of(size_t payload)
{
    uint64_t sum = 0;
    size_t at;

    for (at = 0; at < payload; at++)
        sum += pattern(at);
    return sum;
}

static void drive_throughput(void)
{
    ucp_ifunc_h b = registered("b", 0);
    int log2;

    for (log2 = 0; log2 <= largest_log2; log2++) {
        size_t payload = (size_t)1 << log2, slot = slot_size(payload);
        size_t slots = self.heap_size / slot - 1, all = rounds(payload), i;
        volatile unsigned char *signal = self.heap + self.heap_size - 1;
        ucp_ifunc_msg_t msg = message(b, NULL, payload);
        struct tally tally;
        double start;

        check(msg.frame_size <= slot, "a message is larger than its slot");
        *signal = 0;
        meet(sock, &self);
        start = seconds_now();
        for (i = 0; i < all; i++) {
            send_to(msg, i % slots * slot);
            if ((i + 1) % slots == 0) {
                must(peer_flush(self.worker, other.ep), "flush");
                while (*signal != 0x3c)
                    ucp_worker_progress(self.worker);
                *signal = 0;
            }
        }
        must(peer_flush(self.worker, other.ep), "flush");
        printf("%7zu(%7zu): %.3e messages/s\n", payload, msg.frame_size, (double)all / (seconds_now() - start));
        hear(sock, &tally, sizeof tally);
        check(tally.messages == all && tally.sum == all * sum_of(payload), "the server received something else");
        ucp_ifunc_msg_free(msg);
        meet(sock, &self);
    }
    ucp_deregister_ifunc(self.context, b);
}

/* Client and server send the same message to each other, in turn. */
static void ping_pong(int is_server)
{
    ucp_ifunc_h b = registered("b", 0);
    int log2;

    for (log2 = 0; log2 <= largest_log2; log2++) {
        size_t payload = (size_t)1 << log2, slot = slot_size(payload), all = rounds(payload), i;
        ucp_ifunc_msg_t msg = message(b, NULL, payload);
        struct tally tally;
        double start;

        memset(&tally, 0, sizeof tally);
        memset(self.heap, 42, slot);
        meet(sock, &self);
        start = seconds_now();
        for (i = 0; i < all; i++) {
            if (is_server)
                must(poll_until(self.heap, slot, &tally), "b");
            send_to(msg, 0);
            must(peer_flush(self.worker, other.ep), "flush");
            if (!is_server)
                must(poll_until(self.heap, slot, &tally), "b");
        }
        printf("%7zu: %.3e us\n", payload, (seconds_now() - start) * 1e6 / (double)all);
        check(tally.messages == all && tally.sum == all * sum_of(payload), "something else was received");
        ucp_ifunc_msg_free(msg);
        meet(sock, &self);
    }
    ucp_deregister_ifunc(self.context, b);
}

#ifdef THREECHAINS
/* The same, but the code that arrives sends the answer: it calls `ucp_ifunc_send_nbix`, and the worker makes progress inside of
 * it. What the other side answers may arrive in the heap before this invocation has ended. */
static void injected_ping_pong(int is_server)
{
    ucp_ifunc_h p = registered("p", 0);
    int log2;

    for (log2 = 0; log2 <= largest_log2; log2++) {
        size_t payload = (size_t)1 << log2, slot = slot_size(payload), all = rounds(payload), i, size = 0;
        struct pong pong;
        void *bytes = NULL;
        double start;

        memset(&pong, 0, sizeof pong);
        pong.worker = self.worker;
        pong.ep = other.ep;
        pong.rkey = other.rkey;
        pong.heap = other.heap;
        pong.msg = message(p, NULL, payload);
        pong.flush = peer_flush;
        must(ucp_ifunc_msg_get_payload_ptr(&pong.msg, &bytes, &size), "ucp_ifunc_msg_get_payload_ptr");
        check(size == payload && bytes != NULL, "the payload of a message");
        memset(self.heap, 42, slot);
        meet(sock, &self);
        start = seconds_now();
        if (!is_server) {
            send_to(pong.msg, 0);
            must(peer_flush(self.worker, other.ep), "flush");
        }
        /* The client's last invocation would send once more than the server polls. */
        for (i = 0; i < all; i++) {
            if (!is_server && i + 1 == all)
                pong.flush = NULL;
            must(poll_until(self.heap, slot, &pong), "p");
        }
        printf("%7zu: %.3e us\n", payload, (seconds_now() - start) * 1e6 / (double)all);
        check(pong.tally.messages == all && pong.tally.sum == all * sum_of(payload), "something else was received");
        meet(sock, &self);
        ucp_ifunc_msg_free(pong.msg);
    }
    ucp_deregister_ifunc(self.context, p);
}
#endif

static void options(int argc, char **argv)
{
    int option;

    while ((option = getopt(argc, argv, "pn:l:h:")) != -1) {
        if (option == 'n')
            messages = (size_t)atol(optarg);
        else if (option == 'p') {
#ifndef THREECHAINS
            makes_progress = 1;
#endif
        } else if (option == 'l')
            largest_log2 = atoi(optarg);
        else if (option == 'h')
            heap_log2 = atoi(optarg);
        else
            exit(2);
    }
    check(messages > 0 && largest_log2 >= 0 && largest_log2 <= 20 && heap_log2 >= 23 && heap_log2 < 40, "the options");
}

int main(int argc, char **argv)
{
    struct card *mine = (struct card *)malloc(sizeof *mine), *theirs = (struct card *)malloc(sizeof *theirs);
    int is_server;

    check(mine && theirs, "malloc");
    options(argc, argv);
    is_server = optind == argc;
    peer_open(&self, (size_t)1 << heap_log2);
    sock = is_server ? wait_for_caller() : call(argv[optind]);
    peer_card(&self, mine);
    tell(sock, mine, sizeof *mine);
    hear(sock, theirs, sizeof *theirs);
    peer_connect(&self, theirs, &other);
    must(peer_flush(self.worker, other.ep), "flush");
    meet(sock, &self);

    single_invocations(is_server);
    printf("throughput\n");
    if (is_server)
        serve_throughput();
    else
        drive_throughput();
    printf("ping-pong\n");
    ping_pong(is_server);
#ifdef THREECHAINS
    printf("ping-pong by injected code\n");
    injected_ping_pong(is_server);
#endif

    meet(sock, &self);
    peer_disconnect(&self, &other);
    close(sock);
    peer_close(&self);
    free(mine);
    free(theirs);
    printf("done\n");
    return 0;
}
