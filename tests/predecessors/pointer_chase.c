/* A pointer chase over servers, each of which has a part of the words.
 *
 *     server: pointer_chase
 *     client: pointer_chase [-w WORDS_LOG2] [-d DEPTH_LOG2] [-c CHASES] SERVER... MODE
 *
 * MODE 0 and 1: the chaser is an ifunc that travels from server to server (1: registered as bitcode); 2: the client gets each word
 * by UCX; 3: an active message travels, whose handler the servers have. The client prints where 20 chases come to, which is the
 * same in each mode, and the rate of chases of 1, 2, 4 and more words. */
#define _GNU_SOURCE 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peer.h"
#include "pointer_chase.h"
#include "variant.h"

enum { IFUNC = 0, IFUNC_BITCODE = 1, GET = 2, ACTIVE_MESSAGE = 3 };
enum { ID_CHASE = 1, ID_RESULT = 2 };

/* Half of a heap is for messages, half for the words. */
#define HALF ((size_t)1 << 20)
#define SHOWN 20
#define SHOWN_DEPTH 25

/* What the client tells each server. */
struct plan {
    uint32_t processes;
    uint32_t own_number;
    uint32_t mode;
    uint32_t words_log2;
    struct card cards[MOST_SERVERS + 1];
};

static struct peer self;
static struct plan plan;
static struct remote others[MOST_SERVERS + 1];
static ucp_ep_h eps[MOST_SERVERS + 1];
static ucp_rkey_h rkeys[MOST_SERVERS + 1];
static uint64_t heaps[MOST_SERVERS + 1];
static struct shard shard;
static int sockets[MOST_SERVERS + 1];
/* What the active message brought to the client. */
static volatile uint64_t answered;
static volatile int has_answer;

/* One cycle through all words, the same in each process. */
static uint64_t *all_words(uint64_t count)
{
    uint64_t *words = (uint64_t *)malloc(count * sizeof *words), state = 777, n;

    check(words != NULL, "malloc");
    for (n = 0; n < count; n++)
        words[n] = n;
    for (n = count - 1; n > 0; n--) {
        uint64_t with, word;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        with = state % n;
        word = words[n];
        words[n] = words[with];
        words[with] = word;
    }
    return words;
}

static uint64_t word_count(void)
{
    return (uint64_t)1 << plan.words_log2;
}

static void connect_all(void)
{
    uint32_t n;

    for (n = 0; n < plan.processes; n++) {
        if (n == plan.own_number)
            continue;
        /* A server gets words from no one; a client has no use for its own. */
        peer_connect(&self, &plan.cards[n], &others[n]);
        eps[n] = others[n].ep;
        rkeys[n] = others[n].rkey;
        heaps[n] = others[n].heap;
    }
}

static void disconnect_all(void)
{
    uint32_t n;

    for (n = 0; n < plan.processes; n++)
        if (n != plan.own_number)
            peer_disconnect(&self, &others[n]);
}

static ucp_ifunc_h registered(const char *name)
{
    ucp_ifunc_reg_param_t param;
    ucp_ifunc_h ifunc;
    char text[8];

    memset(&param, 0, sizeof param);
    strcpy(text, name);
    param.name = text;
    param.llvm_bc = plan.mode == IFUNC_BITCODE;
    must(ucp_register_ifunc(self.context, param, &ifunc), name);
    return ifunc;
}

/* ---- The active message. ---- */

static void send_am(unsigned id, ucp_ep_h ep, const void *header, size_t size)
{
    /* UCX reads a header until it has left. No more than two are under way. */
    static struct chase headers[8];
    static unsigned next;
    void *copy = &headers[next++ % 8];
    ucp_request_param_t param;
    ucs_status_ptr_t request;

    memset(&param, 0, sizeof param);
    memcpy(copy, header, size);
    request = ucp_am_send_nbx(ep, id, copy, size, NULL, 0, &param);
    check(!UCS_PTR_IS_ERR(request), "ucp_am_send_nbx");
    if (request != NULL)
        ucp_request_free(request);
}

static ucs_status_t on_chase(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
    struct shard *here = (struct shard *)arg;
    struct chase chase;
    unsigned to;

    (void)data;
    (void)length;
    (void)param;
    check(header_length == sizeof chase, "a chase of another size");
    memcpy(&chase, header, sizeof chase);
    to = follow(here, &chase);
    if (to)
        send_am(ID_CHASE, here->eps[to], &chase, sizeof chase);
    else
        send_am(ID_RESULT, here->eps[chase.asker], &chase.at, sizeof chase.at);
    return UCS_OK;
}

static ucs_status_t on_result(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    uint64_t at;

    (void)arg;
    (void)data;
    (void)length;
    (void)param;
    check(header_length == sizeof at, "a result of another size");
    memcpy(&at, header, sizeof at);
    answered = at;
    has_answer = 1;
    return UCS_OK;
}

static void handle(unsigned id, ucp_am_recv_callback_t callback, void *arg)
{
    ucp_am_handler_param_t param;

    memset(&param, 0, sizeof param);
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.cb = callback;
    param.arg = arg;
    must(ucp_worker_set_am_recv_handler(self.worker, &param), "ucp_worker_set_am_recv_handler");
}

/* ---- A server. ---- */

static void serve(int sock)
{
    uint64_t *words = (uint64_t *)(self.heap + HALF), *all, zero = 0;
    ucp_ifunc_h chaser = NULL, result = NULL;
    struct chase chase;
    size_t idle = 0;

    hear(sock, &plan, sizeof plan);
    check(plan.processes >= 2 && plan.processes <= MOST_SERVERS + 1 && plan.own_number < plan.processes, "the plan");
    shard.size = word_count() / (plan.processes - 1);
    shard.first = (plan.own_number - 1) * shard.size;
    check(shard.size * sizeof *words <= self.heap_size - HALF, "too many words");
    all = all_words(word_count());
    memcpy(words, all + shard.first, shard.size * sizeof *words);
    free(all);
    connect_all();
    shard.words = words;
    shard.eps = eps;
    shard.rkeys = rkeys;
    shard.heaps = heaps;
    shard.worker = self.worker;
    shard.flush = peer_flush;
    shard.is_running = 1;
    handle(ID_CHASE, on_chase, &shard);
    if (plan.mode <= IFUNC_BITCODE) {
        chaser = registered("chaser");
        result = registered("result");
        memset(&chase, 0, sizeof chase);
        must(ucp_ifunc_msg_create(chaser, &chase, sizeof chase, &shard.chaser), "the chaser's message");
        must(ucp_ifunc_msg_create(result, &zero, sizeof zero, &shard.result), "the result's message");
    }
    meet(sock, &self);
    while (shard.is_running) {
        ucs_status_t status = UCS_ERR_NO_MESSAGE;

        if (plan.mode <= IFUNC_BITCODE)
            status = ucp_poll_ifunc(self.context, self.heap, HALF, &shard, self.worker);
        else if (ucp_worker_progress(self.worker))
            status = UCS_OK;
        check(status == UCS_OK || status == UCS_ERR_NO_MESSAGE, "ucp_poll_ifunc");
        idle = status == UCS_OK ? 0 : idle + 1;
        rest(idle);
        if (plan.mode > IFUNC_BITCODE && idle % 256 == 255 && has_heard(sock))
            shard.is_running = 0;
    }
    meet(sock, &self);
    if (chaser != NULL) {
        ucp_ifunc_msg_free(shard.chaser);
        ucp_ifunc_msg_free(shard.result);
        ucp_deregister_ifunc(self.context, chaser);
        ucp_deregister_ifunc(self.context, result);
    }
    disconnect_all();
}

/* ---- The client. ---- */

static ucp_ifunc_msg_t message;

static uint64_t chase_by_ifunc(unsigned to, const struct chase *chase)
{
    uint64_t result = UINT64_MAX;
    ucs_status_t status;
    size_t size = 0, idle = 0;
    void *payload;

    must(ucp_ifunc_msg_get_payload_ptr(&message, &payload, &size), "ucp_ifunc_msg_get_payload_ptr");
    check(size == sizeof *chase, "the payload's size");
    memcpy(payload, chase, sizeof *chase);
    status = ucp_ifunc_send_nbix(eps[to], message, heaps[to], rkeys[to]);
    check(status == UCS_OK || status == UCS_INPROGRESS, "ucp_ifunc_send_nbix");
    must(peer_flush(self.worker, eps[to]), "flush");
    do {
        status = ucp_poll_ifunc(self.context, self.heap, HALF, &result, self.worker);
        rest(idle++);
    } while (status == UCS_ERR_NO_MESSAGE);
    must(status, "ucp_poll_ifunc");
    return result;
}

static uint64_t chase_by_get(const struct chase *chase)
{
    uint64_t at = chase->at, left, word, size = word_count() / (plan.processes - 1);
    ucp_request_param_t param;

    memset(&param, 0, sizeof param);
    for (left = chase->left; left; left--) {
        unsigned to = (unsigned)(at / size) + 1;
        uint64_t place = heaps[to] + HALF + at % size * sizeof word;
        size_t idle = 0;
        ucs_status_ptr_t request = ucp_get_nbx(eps[to], &word, sizeof word, place, rkeys[to], &param);

        check(!UCS_PTR_IS_ERR(request), "ucp_get_nbx");
        if (request != NULL) {
            while (ucp_request_check_status(request) == UCS_INPROGRESS)
                if (!ucp_worker_progress(self.worker))
                    rest(idle++);
            must(ucp_request_check_status(request), "ucp_get_nbx");
            ucp_request_free(request);
        }
        at = word;
    }
    return at;
}

static uint64_t chase_by_am(unsigned to, const struct chase *chase)
{
    size_t idle = 0;

    has_answer = 0;
    send_am(ID_CHASE, eps[to], chase, sizeof *chase);
    while (!has_answer)
        if (!ucp_worker_progress(self.worker))
            rest(idle++);
    return answered;
}

static uint64_t run(uint64_t depth, uint64_t from)
{
    struct chase chase;
    unsigned to;

    chase.left = depth;
    chase.at = from;
    chase.asker = 0;
    to = (unsigned)(from / (word_count() / (plan.processes - 1))) + 1;
    if (plan.mode == GET)
        return chase_by_get(&chase);
    return plan.mode == ACTIVE_MESSAGE ? chase_by_am(to, &chase) : chase_by_ifunc(to, &chase);
}

static void drive(uint64_t depth_log2, uint64_t chases)
{
    uint64_t *all = all_words(word_count()), n, log2;

    for (n = 0; n < SHOWN; n++)
        printf("[%2u]: %llu\n", (unsigned)n, (unsigned long long)run(SHOWN_DEPTH, n * 997 % word_count()));
    for (log2 = 0; log2 <= depth_log2; log2++) {
        uint64_t depth = (uint64_t)1 << log2;
        double start = seconds_now();

        for (n = 0; n < chases; n++) {
            uint64_t from = (n * 7919 + log2) % word_count(), at = from, left, found = run(depth, from);

            for (left = depth; left; left--)
                at = all[at];
            check(found == at, "a chase came to a wrong word");
        }
        printf("%u,%u,%llu,%llu,%.1f\n", plan.processes - 1, plan.mode, (unsigned long long)depth,
               (unsigned long long)chases, (double)chases / (seconds_now() - start));
    }
    free(all);
}

static void be_client(char **servers, unsigned count, uint64_t depth_log2, uint64_t chases)
{
    ucp_ifunc_h chaser = NULL, stop = NULL;
    struct chase chase;
    unsigned n;

    check(count >= 1 && count <= MOST_SERVERS && (count & (count - 1)) == 0, "1, 2, 4 … servers, and a mode");
    plan.processes = count + 1;
    peer_card(&self, &plan.cards[0]);
    for (n = 1; n <= count; n++) {
        sockets[n] = call(servers[n - 1]);
        hear(sockets[n], &plan.cards[n], sizeof plan.cards[n]);
    }
    for (n = 1; n <= count; n++) {
        plan.own_number = n;
        tell(sockets[n], &plan, sizeof plan);
    }
    plan.own_number = 0;
    connect_all();
    handle(ID_RESULT, on_result, NULL);
    if (plan.mode <= IFUNC_BITCODE) {
        chaser = registered("chaser");
        stop = registered("stop");
        memset(&chase, 0, sizeof chase);
        must(ucp_ifunc_msg_create(chaser, &chase, sizeof chase, &message), "the chaser's message");
        printf("message of %zu bytes\n", message.frame_size);
    }
    for (n = 1; n <= count; n++)
        meet(sockets[n], &self);

    drive(depth_log2, chases);

    if (chaser != NULL) {
        ucp_ifunc_msg_free(message);
        must(ucp_ifunc_msg_create(stop, NULL, 0, &message), "the message that stops");
        for (n = 1; n <= count; n++) {
            ucs_status_t status = ucp_ifunc_send_nbix(eps[n], message, heaps[n], rkeys[n]);
            check(status == UCS_OK || status == UCS_INPROGRESS, "ucp_ifunc_send_nbix");
            must(peer_flush(self.worker, eps[n]), "flush");
        }
        ucp_ifunc_msg_free(message);
        ucp_deregister_ifunc(self.context, chaser);
        ucp_deregister_ifunc(self.context, stop);
    } else {
        for (n = 1; n <= count; n++)
            tell(sockets[n], "!", 1);
    }
    for (n = 1; n <= count; n++) {
        meet(sockets[n], &self);
        close(sockets[n]);
    }
    disconnect_all();
}

int main(int argc, char **argv)
{
    uint64_t depth_log2 = 6, chases = 20;
    int option;

    plan.words_log2 = 14;
    while ((option = getopt(argc, argv, "w:d:c:")) != -1) {
        if (option == 'w')
            plan.words_log2 = (uint32_t)atoi(optarg);
        else if (option == 'd')
            depth_log2 = (uint64_t)atoi(optarg);
        else if (option == 'c')
            chases = (uint64_t)atol(optarg);
        else
            return 2;
    }
    check(plan.words_log2 >= 6 && plan.words_log2 <= 17 && depth_log2 <= 20, "the options");
    peer_open(&self, 2 * HALF);
    if (optind == argc) {
        struct card *card = (struct card *)malloc(sizeof *card);
        int sock = wait_for_caller();

        check(card != NULL, "malloc");
        peer_card(&self, card);
        tell(sock, card, sizeof *card);
        serve(sock);
        close(sock);
        free(card);
    } else {
        plan.mode = (uint32_t)atoi(argv[argc - 1]);
        check(plan.mode <= ACTIVE_MESSAGE, "MODE is 0, 1, 2 or 3");
        be_client(argv + optind, (unsigned)(argc - 1 - optind), depth_log2, chases);
    }
    peer_close(&self);
    printf("done\n");
    return 0;
}
