/*
 * Calls of an ifunc through `ifunc_rt.h`, as an application in C makes them.
 *
 *     calls source ADDRESS     reads slots, answers the time of a call
 *     calls target ADDRESS     answers its address, and serves until its input ends
 *
 * Requests and replies are lines of JSON: those of `Calls` and `Sample` in `mod.rs`.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ifunc_rt.h>

/* The type of what ifuncs are given, as `cargo ifunc inspect` prints it. */
#define TALLY "struct Tally{0:count:u64,8:sum:u64}[16,8]"
/* Calls that wake both sides. */
#define WAKING 8

struct tally {
    uint64_t count, sum;
};

static void ok(ifunc_status status, const char *what)
{
    if (status != IFUNC_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", what, ifunc_rt_last_error());
        exit(1);
    }
}

/* As `answer` in `ifuncs/src/lib.rs`. */
static uint64_t answer(uint64_t number)
{
    number *= UINT64_C(0x9e3779b97f4a7c15);
    return number << 31 | number >> 33;
}

static void calls(const ifunc_handle *handle, uint64_t from, uint64_t count)
{
    uint64_t number, got;

    for (number = from; number < from + count; number++) {
        ok(ifunc_handle_call_wait(handle, &number, sizeof number, &got, sizeof got, NULL), "a call");
        if (got != answer(number)) {
            fprintf(stderr, "a wrong answer\n");
            exit(1);
        }
    }
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int source(const char *address)
{
    ifunc_source *source;
    ifunc_handle *handle;
    char line[256], transport[256];
    unsigned long long count;
    uint64_t next = 0;
    double began;

    ok(ifunc_source_connect(address, NULL, &source), "connecting");
    ok(ifunc_source_load(source, "question", &handle), "loading");
    ifunc_source_transport(source, transport, sizeof transport);
    printf("\"%s\"\n", transport);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "{\"operations\":%llu", &count) != 1) {
            fprintf(stderr, "unknown request: %s", line);
            return 1;
        }
        calls(handle, next, WAKING);
        next += WAKING;
        began = now();
        calls(handle, next, count);
        next += count;
        printf("{\"ns\":%.3f,\"percentiles\":null}\n", (now() - began) / (double)count);
        fflush(stdout);
    }
    ifunc_handle_destroy(handle);
    ifunc_source_destroy(source);
    return 0;
}

static void *wait_for_end(void *target)
{
    int byte;

    do
        byte = getchar();
    while (byte != EOF);
    ifunc_target_stop(target);
    return NULL;
}

static int target(const char *address)
{
    ifunc_target_options *options = ifunc_target_options_create();
    ifunc_target *target;
    struct tally tally = {0, 0};
    pthread_t thread;

    ok(ifunc_target_options_accept_code_of_every_peer(options), "accepting code");
    ok(ifunc_target_options_set_target_type(options, TALLY), "stating the type");
    ok(ifunc_target_listen(address, options, &target), "listening");
    ifunc_target_options_destroy(options);
    printf("\"%s\"\n", ifunc_target_address(target));
    fflush(stdout);
    pthread_create(&thread, NULL, wait_for_end, target);
    ok(ifunc_target_serve(target, &tally), "serving");
    pthread_join(thread, NULL);
    return ifunc_target_destroy(target) == IFUNC_STATUS_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "source") == 0)
        return source(argv[2]);
    if (argc == 3 && strcmp(argv[1], "target") == 0)
        return target(argv[2]);
    fprintf(stderr, "calls source|target ADDRESS\n");
    return 2;
}
