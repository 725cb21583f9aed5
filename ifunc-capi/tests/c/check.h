/* What the programs that test the C interface share: checks, and a target that serves. */
#ifndef CHECK_H
#define CHECK_H

#include <ifunc_rt.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void failed(int line, const char *what, const char *more)
{
    fprintf(stderr, "line %d: %s: %s\n", line, what, more);
    exit(1);
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            failed(__LINE__, #condition, ifunc_rt_last_error());                                                       \
    } while (0)
#define OK(call) expect(__LINE__, #call, (call), IFUNC_STATUS_OK, "")
/* The status of a call, and a part of its text. */
#define FAILS(status, text, call) expect(__LINE__, #call, (call), (status), (text))
#define IS_NULL(call) FAILS(IFUNC_STATUS_NULL_ARGUMENT, "is a null pointer", call)
/* The same, where another argument could be the reason. */
#define ARGUMENT_IS_NULL(argument, call) FAILS(IFUNC_STATUS_NULL_ARGUMENT, "`" argument "` is a null pointer", call)

/* Which statuses were met, so that the test can tell which were not. */
enum { MOST_STATUSES = 256 };
static bool met[MOST_STATUSES];

static inline void print_met(void)
{
    int i;
    for (i = 0; i < MOST_STATUSES; i++)
        if (met[i])
            printf("met %s\n", ifunc_status_name(i - MOST_STATUSES / 2));
}

static inline void expect(int line, const char *what, ifunc_status status, ifunc_status expected, const char *text)
{
    met[status + MOST_STATUSES / 2] = true;
    if (status != expected)
        fprintf(stderr, "%s, not %s\n", ifunc_status_name(status), ifunc_status_name(expected)),
            failed(line, what, ifunc_rt_last_error());
    if (*text && !strstr(ifunc_rt_last_error(), text))
        failed(line, what, ifunc_rt_last_error());
}

static const uint64_t GENEROUS = IFUNC_SECONDS(60);

static inline const char *address_of(const char *name)
{
    static char address[256];
    snprintf(address, sizeof address, "%s-%ld", name, (long)getpid());
    return address;
}

struct state {
    uint64_t counter;
};

/* A target on a thread of its own. */
struct serving {
    ifunc_target *target;
    struct state state;
    pthread_t thread;
    ifunc_status ended;
};

static inline void *serve(void *arg)
{
    struct serving *serving = arg;
    serving->ended = ifunc_target_serve(serving->target, &serving->state);
    return NULL;
}

static inline void start(struct serving *serving, const char *address, const ifunc_target_options *options)
{
    memset(serving, 0, sizeof *serving);
    OK(ifunc_target_listen(address, options, &serving->target));
    CHECK(!pthread_create(&serving->thread, NULL, serve, serving));
}

static inline void stop(struct serving *serving)
{
    ifunc_target_stop(serving->target);
    CHECK(!pthread_join(serving->thread, NULL));
    CHECK(serving->ended == IFUNC_STATUS_OK);
    OK(ifunc_target_destroy(serving->target));
}

/* Options of a target that accepts code. */
static inline ifunc_target_options *accepting(void)
{
    ifunc_target_options *options = ifunc_target_options_create();
    OK(ifunc_target_options_accept_code(options));
    return options;
}

static inline ifunc_source *connected(const char *address)
{
    ifunc_source *source;
    OK(ifunc_source_connect(address, NULL, &source));
    return source;
}

static inline ifunc_handle *loaded(ifunc_source *source, const char *name)
{
    ifunc_handle *handle;
    OK(ifunc_source_load(source, name, &handle));
    return handle;
}

#endif
