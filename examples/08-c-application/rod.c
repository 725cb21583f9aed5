/* Heat in a rod, computed by two processes that exchange the temperatures at their common end by tag messages of UCX. This is
 * all that the program knows. While it runs, each process sends the other ifuncs, over the same worker: `probe`, written in C,
 * reads temperatures; `warm`, written in Rust, changes them.
 *
 *     rod 0 FOLDER & rod 1 FOLDER         the processes meet in FOLDER */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ifunc_rt.h>
#include <ucp/api/ucp.h>

#include "rod.h"

#define STEPS 2000
#define PROBES 20
#define WARMINGS 5
/* The tags of the application's messages; that of an edge has the step above it. */
#define TAG_EDGE 1
#define TAG_END 2
#define TAG_RECORD 3
/* The id of the active messages that ifunc may use. */
#define IFUNC_AM_ID 7

/* The payload of `warm`: `Heat` of ifuncs/src/lib.rs. */
struct heat {
    uint32_t first;
    uint32_t count;
    double degrees;
};

/* A call of the other process's half. They run there in the order in which they were sent. */
struct event {
    uint32_t is_warming;
    struct heat heat;
    /* The answer: of `warm`, only the step. */
    struct reading reading;
};

/* What a process asked and was answered, and how its half ended. */
struct record {
    uint32_t count;
    struct event event[PROBES + WARMINGS];
    struct rod rod;
};

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static ifunc_target *target;
static struct rod rod;
static struct record record;
static int rank;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "rod %d: %s: %s\n", rank, what, why);
    exit(1);
}

static void must(ifunc_status status, const char *what)
{
    if (status < 0)
        fail(what, ifunc_rt_last_error());
}

static void must_ucs(ucs_status_t status, const char *what)
{
    if (status != UCS_OK)
        fail(what, ucs_status_string(status));
}

/* ---- What such a program has anyway: a worker, an endpoint, messages by tag. ---- */

static void open_worker(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_SINGLE};

    must_ucs(ucp_init(&params, NULL, &context), "ucp_init");
    must_ucs(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
}

/* Writes this worker's address to a file of FOLDER, and reads that of the other process. */
static void connect_workers(const char *folder)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    char path[4096], made[4096], bytes[4096];
    ucp_address_t *address;
    size_t length;
    FILE *file;
    int tries;

    must_ucs(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    snprintf(made, sizeof made, "%s/address-%d.tmp", folder, rank);
    snprintf(path, sizeof path, "%s/address-%d", folder, rank);
    file = fopen(made, "w");
    if (file == NULL || fwrite(address, length, 1, file) != 1 || fclose(file) != 0 || rename(made, path) != 0)
        fail(path, "cannot be written");
    ucp_worker_release_address(worker, address);

    snprintf(path, sizeof path, "%s/address-%d", folder, 1 - rank);
    for (tries = 0; (file = fopen(path, "r")) == NULL; tries++) {
        if (tries == 6000)
            fail(path, "the other process has not written it in a minute");
        nanosleep(&pause, NULL);
    }
    if (fread(bytes, 1, sizeof bytes, file) == 0)
        fail(path, "cannot be read");
    fclose(file);
    params.address = (const ucp_address_t *)bytes;
    must_ucs(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
}

/* One round of the application's loop. What ifunc sent arrives by the same `ucp_worker_progress`; then it may run. */
static void progress(void)
{
    ucp_worker_progress(worker);
    if (target != NULL)
        must(ifunc_target_poll(target, &rod, NULL), "ifunc_target_poll");
}

static void close_worker(void)
{
    const ucp_request_param_t none = {0};
    ucs_status_ptr_t closing = ucp_ep_close_nbx(ep, &none);

    while (closing != NULL && !UCS_PTR_IS_ERR(closing) && ucp_request_check_status(closing) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    if (closing != NULL && !UCS_PTR_IS_ERR(closing))
        ucp_request_free(closing);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void wait_for(ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = UCS_OK;

    if (UCS_PTR_IS_ERR(request))
        fail(what, ucs_status_string(UCS_PTR_STATUS(request)));
    if (request == NULL)
        return;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        progress();
    must_ucs(status, what);
    ucp_request_free(request);
}

static void exchange(ucp_tag_t tag, const void *out, void *in, size_t size)
{
    const ucp_request_param_t none = {0};
    ucs_status_ptr_t received = ucp_tag_recv_nbx(worker, in, size, tag, (ucp_tag_t)-1, &none);

    wait_for(ucp_tag_send_nbx(ep, out, size, tag, &none), "ucp_tag_send_nbx");
    wait_for(received, "ucp_tag_recv_nbx");
}

/* ---- What it adds to be a target and a source. ---- */

/* A function that ifuncs may call. */
static void announce(uint64_t step, double degrees)
{
    printf("rod %d: %.1f degrees more before step %llu\n", rank, degrees, (unsigned long long)step);
}

static ifunc_source *attach(ifunc_worker **attached)
{
    ifunc_target_options *options = ifunc_target_options_create();
    ifunc_connecting *connecting;
    ifunc_source *source = NULL;
    ifunc_status status;

    must(ifunc_worker_attach(context, worker, IFUNC_AM_ID, 0, attached), "ifunc_worker_attach");
    /* UCX knows no users: every process that reaches this worker is trusted, as it is with the rest of this process. */
    must(ifunc_target_options_accept_code_of_every_peer(options), "accept_code");
    must(ifunc_target_options_set_target_type(options, ROD_TYPE), "set_target_type");
    must(ifunc_target_options_export_function(options, "announce", "fn announce(u64,f64)", (ifunc_function)announce),
         "export_function");
    must(ifunc_target_listen_on(*attached, options, &target), "ifunc_target_listen_on");
    ifunc_target_options_destroy(options);

    /* Both processes connect to each other, so neither may wait for the other. */
    must(ifunc_connecting_start(*attached, ep, NULL, &connecting), "ifunc_connecting_start");
    while ((status = ifunc_connecting_poll(connecting, &source)) == IFUNC_STATUS_IN_PROGRESS)
        progress();
    must(status, "connecting");
    ifunc_connecting_destroy(connecting);
    return source;
}

/* Sends a call whose answer will be in `event`. */
static ifunc_call *ask(ifunc_handle *handle, struct event *event)
{
    ifunc_call *call;

    must(event->is_warming ? ifunc_handle_try_call(handle, &event->heat, sizeof event->heat, &call)
                           : ifunc_handle_try_call(handle, NULL, 0, &call),
         ifunc_handle_name(handle));
    return call;
}

/* Takes the answer of a call if it has arrived. Returns the call if it has not. */
static ifunc_call *answered(ifunc_call *call, struct event *event)
{
    size_t expected = event->is_warming ? sizeof event->reading.step : sizeof event->reading, length;
    ifunc_status status = ifunc_call_test(call);
    const void *answer;

    must(status, "a call");
    if (status == IFUNC_STATUS_IN_PROGRESS)
        return call;
    answer = ifunc_call_answer(call, &length);
    if (length != expected)
        fail("a call", "the answer has another size");
    memcpy(&event->reading, answer, length);
    ifunc_call_destroy(call);
    return NULL;
}

/* An ifunc in Rust that panics does no harm: its source gets an error. */
static void ask_for_too_much(ifunc_handle *warm)
{
    struct event event = {.is_warming = 1, .heat = {.first = CELLS, .count = 2, .degrees = 1.0}};
    ifunc_call *call = ask(warm, &event);
    ifunc_status status;

    while ((status = ifunc_call_test(call)) == IFUNC_STATUS_IN_PROGRESS)
        progress();
    if (status != IFUNC_STATUS_PANIC)
        fail("a range outside of the half", status == IFUNC_STATUS_OK ? "was accepted" : ifunc_rt_last_error());
    printf("rod %d: refused: %s\n", rank, ifunc_rt_last_error());
    ifunc_call_destroy(call);
}

/* ---- The simulation. ---- */

static void initial(struct rod *half, int which)
{
    unsigned n;

    memset(half, 0, sizeof *half);
    for (n = 0; n < CELLS + 2; n++)
        half->cell[n] = which == 0 ? 20.0 + n % 7 : 35.0 - n % 5;
}

/* One step of a half whose neighbours' temperatures are in `cell[0]` and `cell[CELLS + 1]`. */
static void advance(struct rod *half)
{
    double before = half->cell[0];
    unsigned n;

    for (n = 1; n <= CELLS; n++) {
        double here = half->cell[n];

        half->cell[n] = here + 0.25 * (before - 2.0 * here + half->cell[n + 1]);
        before = here;
    }
    half->step++;
}

/* The ends of the rod are kept at their temperature. */
static void set_outer_end(struct rod *half, int which)
{
    half->cell[which == 0 ? 0 : CELLS + 1] = which == 0 ? 20.0 : 35.0;
}

/* What an ifunc in Rust does in the other process, for the comparison. */
static void apply(struct rod *half, const struct heat *heat)
{
    uint32_t n;

    for (n = 0; n < heat->count; n++)
        half->cell[heat->first + n] += heat->degrees;
}

static void simulate(ifunc_handle *probe, ifunc_handle *warm)
{
    struct event *probed = NULL, *warmed = NULL;
    ifunc_call *probing = NULL, *warming = NULL;
    uint32_t probes = 0, warmings = 0;
    uint64_t round;

    for (round = 0; round < STEPS || probing != NULL || warming != NULL; round++) {
        if (round < STEPS) {
            double mine = rod.cell[rank == 0 ? CELLS : 1], theirs;

            /* Ifuncs run while this waits: after the edge was read and before the step. */
            exchange(round << 8 | TAG_EDGE, &mine, &theirs, sizeof mine);
            rod.cell[rank == 0 ? CELLS + 1 : 0] = theirs;
            set_outer_end(&rod, rank);
            advance(&rod);
        } else {
            progress();
        }
        /* The simulation does not wait for the calls. */
        if (probing != NULL)
            probing = answered(probing, probed);
        if (warming != NULL)
            warming = answered(warming, warmed);
        if (probing == NULL && probes < PROBES && (round % 50 == 0 || round >= STEPS)) {
            probed = &record.event[record.count++];
            probing = ask(probe, probed);
            probes++;
        }
        if (warming == NULL && warmings < WARMINGS && (round % 200 == 100 || round >= STEPS)) {
            warmed = &record.event[record.count++];
            warmed->is_warming = 1;
            warmed->heat.first = 10 * (warmings + 1);
            warmed->heat.count = 20;
            warmed->heat.degrees = 5.0 + warmings;
            warming = ask(warm, warmed);
            warmings++;
        }
    }
}

/* ---- The same in one process. ---- */

/* What ran in one half before a step. */
static uint32_t replay(struct rod *half, const struct record *record_of_other, uint32_t from)
{
    for (; from < record_of_other->count; from++) {
        const struct event *event = &record_of_other->event[from];
        struct reading reading = {half->step, half->cell[1], half->cell[1], 0.0};
        unsigned n;

        if (event->reading.step != half->step)
            break;
        if (event->is_warming) {
            apply(half, &event->heat);
            continue;
        }
        for (n = 1; n <= CELLS; n++) {
            reading.least = half->cell[n] < reading.least ? half->cell[n] : reading.least;
            reading.most = half->cell[n] > reading.most ? half->cell[n] : reading.most;
            reading.mean += half->cell[n];
        }
        reading.mean /= CELLS;
        if (memcmp(&reading, &event->reading, sizeof reading) != 0)
            fail("checked", "a reading differs from that of a sequential computation");
    }
    return from;
}

static void check(const struct record *records)
{
    uint32_t next[2] = {0, 0}, step;
    struct rod half[2];
    int n;

    initial(&half[0], 0);
    initial(&half[1], 1);
    for (step = 0; step <= STEPS; step++) {
        double left = half[0].cell[CELLS], right = half[1].cell[1];

        for (n = 0; n < 2; n++)
            next[n] = replay(&half[n], &records[1 - n], next[n]);
        if (step == STEPS)
            break;
        half[0].cell[CELLS + 1] = right;
        half[1].cell[0] = left;
        for (n = 0; n < 2; n++) {
            set_outer_end(&half[n], n);
            advance(&half[n]);
        }
    }
    for (n = 0; n < 2; n++) {
        if (next[n] != records[1 - n].count)
            fail("checked", "calls ran in another order than they were sent");
        if (half[n].step != records[n].rod.step
            || memcmp(&half[n].cell[1], &records[n].rod.cell[1], CELLS * sizeof(double)) != 0)
            fail("checked", "the temperatures differ from those of a sequential computation");
    }
    printf("checked: %d cells after %d steps, %d readings and %d warmings are those of a sequential computation\n",
           2 * CELLS, STEPS, 2 * PROBES, 2 * WARMINGS);
}

int main(int argc, char **argv)
{
    struct record records[2];
    ifunc_worker *attached;
    ifunc_source *source;
    ifunc_handle *probe, *warm;
    char end = '!', other_end;

    if (argc != 3 || (rank = atoi(argv[1])) < 0 || rank > 1) {
        fprintf(stderr, "usage: rod 0|1 FOLDER\n");
        return 2;
    }
    initial(&rod, rank);
    open_worker();
    connect_workers(argv[2]);

    source = attach(&attached);
    must(ifunc_source_load(source, "probe", &probe), "probe");
    must(ifunc_source_load(source, "warm", &warm), "warm");
    ask_for_too_much(warm);
    simulate(probe, warm);

    /* Until the other process has all its answers. */
    memcpy(&records[rank], &record, sizeof record);
    exchange(TAG_END, &end, &other_end, 1);
    records[rank].rod = rod;
    exchange(TAG_RECORD, &records[rank], &records[1 - rank], sizeof record);
    if (rank == 0)
        check(records);

    ifunc_handle_destroy(probe);
    ifunc_handle_destroy(warm);
    ifunc_source_destroy(source);
    must(ifunc_target_destroy(target), "ifunc_target_destroy");
    must(ifunc_worker_close(attached), "ifunc_worker_close");
    ifunc_worker_destroy(attached);
    /* The worker is the application's alone again. */
    close_worker();
    return 0;
}
