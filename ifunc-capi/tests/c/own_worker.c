/* A program with UCX of its own: one context, a worker that serves and a worker that sends, and an endpoint from one to the other, all on one
 * thread. With an argument, only the program calls `ucp_worker_progress`. */
#include "check.h"

#include <ucp/api/ucp.h>

#include <time.h>

enum { AM_ID = 17 };

static ucp_worker_h served, sending;
static bool is_ours;

static ucp_context_h new_context(uint64_t features)
{
    ucp_params_t params;
    ucp_config_t *config;
    ucp_context_h context;
    memset(&params, 0, sizeof params);
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = features;
    CHECK(ucp_config_read(NULL, NULL, &config) == UCS_OK);
    CHECK(ucp_init(&params, config, &context) == UCS_OK);
    ucp_config_release(config);
    return context;
}

/* What such a program does anyway. */
static void progress(void)
{
    ucp_worker_progress(served);
    ucp_worker_progress(sending);
}

static void *closes(void *arg)
{
    FAILS(IFUNC_STATUS_WRONG_THREAD, "belongs to another thread", ifunc_worker_close(arg));
    return NULL;
}

static ucp_worker_h new_worker(ucp_context_h context)
{
    ucp_worker_params_t params;
    ucp_worker_h worker;
    memset(&params, 0, sizeof params);
    params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    params.thread_mode = UCS_THREAD_MODE_SINGLE;
    CHECK(ucp_worker_create(context, &params, &worker) == UCS_OK);
    return worker;
}

/* A worker that the runtime cannot use. */
static void without_active_messages(void)
{
    ucp_context_h context = new_context(UCP_FEATURE_TAG);
    ucp_worker_h worker = new_worker(context);
    ifunc_worker *attached;

    FAILS(IFUNC_STATUS_WORKER, "UCP_FEATURE_AM", ifunc_worker_attach(context, worker, AM_ID, 0, &attached));
    CHECK(!attached);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

int main(int argc, char **argv)
{
    ucp_context_h context = new_context(UCP_FEATURE_AM | UCP_FEATURE_TAG);
    ucp_address_t *address;
    ucp_ep_params_t ep_params;
    ucp_ep_h ep;
    size_t len;

    ifunc_worker *there, *here;
    ifunc_target_options *options = ifunc_target_options_create();
    ifunc_source_options *its_options = ifunc_source_options_create();
    ifunc_target *target;
    ifunc_connecting *connecting;
    ifunc_source *source, *second;
    ifunc_handle *add;
    ifunc_call *call;
    ifunc_status status;
    uint64_t counter = 0, i;
    uint32_t flags;
    pthread_t thread;

    (void)argv;
    is_ours = argc > 1;
    flags = is_ours ? IFUNC_WORKER_NO_PROGRESS : 0;
    without_active_messages();
    served = new_worker(context);
    sending = new_worker(context);
    CHECK(ucp_worker_get_address(served, &address, &len) == UCS_OK);
    memset(&ep_params, 0, sizeof ep_params);
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address = address;
    CHECK(ucp_ep_create(sending, &ep_params, &ep) == UCS_OK);
    ucp_worker_release_address(served, address);

    /* What it adds. */
    OK(ifunc_worker_attach(context, served, AM_ID, flags, &there));
    OK(ifunc_worker_attach(context, sending, AM_ID, flags, &here));
    OK(ifunc_source_options_set_connect_timeout(its_options, IFUNC_MILLISECONDS(1)));
    FAILS(IFUNC_STATUS_UNREACHABLE, "", ifunc_source_connect_over(here, ep, its_options, &source));
    CHECK(!source);
    OK(ifunc_target_options_accept_code_of_every_peer(options));
    OK(ifunc_target_listen_on(there, options, &target));
    CHECK(!strncmp(ifunc_target_address(target), "ucx-worker:", 11));
    FAILS(IFUNC_STATUS_ADDRESS_IN_USE, "", ifunc_target_listen_on(there, options, (ifunc_target **)&second));
    OK(ifunc_source_options_set_connect_timeout(its_options, IFUNC_SECONDS(60)));
    OK(ifunc_source_options_set_reconnect(its_options, 0));
    OK(ifunc_connecting_start(here, ep, its_options, &connecting));
    while ((status = ifunc_connecting_poll(connecting, &source)) == IFUNC_STATUS_IN_PROGRESS) {
        if (is_ours)
            progress();
        ifunc_worker_poll(there);
        OK(ifunc_target_poll(target, &counter, NULL));
    }
    OK(status);
    CHECK(source);
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "has ended before", ifunc_connecting_poll(connecting, &second));
    ifunc_connecting_destroy(connecting);

    OK(ifunc_source_load(source, "add", &add));
    for (i = 1; i <= 1000; i++) {
        const uint64_t *answer;
        OK(ifunc_handle_try_call(add, &i, sizeof i, &call));
        while ((status = ifunc_call_test(call)) == IFUNC_STATUS_IN_PROGRESS) {
            if (is_ours)
                progress();
            OK(ifunc_target_poll(target, &counter, NULL));
        }
        OK(status);
        answer = ifunc_call_answer(call, &len);
        CHECK(len == sizeof *answer && *answer == i * (i + 1) / 2);
        ifunc_call_destroy(call);
    }

    OK(ifunc_worker_peer_gone(here, ep));
    i = 1;
    /* There is nothing to send over any more. */
    FAILS(IFUNC_STATUS_WOULD_BLOCK, "`add`", ifunc_handle_try_send(add, &i, sizeof i));
    CHECK(!pthread_create(&thread, NULL, closes, here) && !pthread_join(thread, NULL));
    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);
    OK(ifunc_target_destroy(target));
    OK(ifunc_worker_close(here));
    OK(ifunc_worker_close(there));
    OK(ifunc_worker_close(there));
    CHECK(!ifunc_worker_poll(there));
    FAILS(IFUNC_STATUS_WORKER, "is closed", ifunc_target_listen_on(there, options, &target));
    FAILS(IFUNC_STATUS_WORKER, "is closed", ifunc_source_connect_over(here, ep, its_options, &source));
    FAILS(IFUNC_STATUS_WORKER, "is closed", ifunc_connecting_start(here, ep, its_options, &connecting));
    CHECK(!target && !source && !connecting);
    ifunc_worker_destroy(here);
    ifunc_worker_destroy(there);
    ifunc_target_options_destroy(options);
    ifunc_source_options_destroy(its_options);

    /* The workers are the program's alone again. */
    ucp_ep_destroy(ep);
    progress();
    ucp_worker_destroy(sending);
    ucp_worker_destroy(served);
    ucp_cleanup(context);
    print_met();
    puts("own worker passed");
    return 0;
}
