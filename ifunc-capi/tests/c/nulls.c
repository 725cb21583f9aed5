/* Null pointers: passes null for each pointer argument of each function of ifunc_rt.h. */
#include "check.h"

struct objects {
    ifunc_source *source;
    ifunc_handle *add;
};

static int never_done(void *target_args, void *user)
{
    (void)target_args, (void)user;
    return 0;
}

static int never_valid(const ifunc_source_info *source, const ifunc_image_info *image, void *user)
{
    (void)source, (void)image, (void)user;
    return 0;
}

static int go_on(const ifunc_escaped *escaped, void *user)
{
    (void)escaped, (void)user;
    return 0;
}

static int sends_nothing(ifunc_scope *scope, void *user)
{
    (void)scope, (void)user;
    return 0;
}

static void some_function(void)
{
}

/* No function crashes, and each does what its comment says. */
static void every_function(void)
{
    uint64_t data[8] = {0};
    size_t len = 7;
    const void *part = data;
    ifunc_source *source = (ifunc_source *)data;
    ifunc_handle *handle;
    ifunc_call *call;
    ifunc_message *message;
    ifunc_stream *stream;
    ifunc_driver *driver;
    ifunc_target *target;
    ifunc_group *group;
    ifunc_tls_keys *keys, *some_keys = (ifunc_tls_keys *)data;
    ifunc_stats *stats;
    ifunc_worker *worker;
    ifunc_connecting *connecting;
    ifunc_finished finished;
    ifunc_target_totals totals;
    ifunc_source_counts source_counts;
    ifunc_entry_counts entry;
    ifunc_target_options *options = ifunc_target_options_create();

    ifunc_tls_keys_destroy(NULL);
    ARGUMENT_IS_NULL("path", ifunc_tls_keys_read(NULL, &keys));
    ARGUMENT_IS_NULL("keys", ifunc_tls_keys_read("/nonesuch", NULL));
    IS_NULL(ifunc_tls_keys_add_peer(NULL, "/nonesuch"));
    ARGUMENT_IS_NULL("path", ifunc_tls_keys_add_peer(some_keys, NULL));
    IS_NULL(ifunc_tls_keys_set_certificate(NULL, "/nonesuch"));
    ARGUMENT_IS_NULL("path", ifunc_tls_keys_set_certificate(some_keys, NULL));
    IS_NULL(ifunc_tls_keys_set_authority(NULL, "/nonesuch", NULL));
    ARGUMENT_IS_NULL("path", ifunc_tls_keys_set_authority(some_keys, NULL, NULL));
    ARGUMENT_IS_NULL("options", ifunc_source_options_set_tls(NULL, some_keys));
    ARGUMENT_IS_NULL("keys", ifunc_source_options_set_tls((ifunc_source_options *)data, NULL));
    ARGUMENT_IS_NULL("options", ifunc_target_options_set_tls(NULL, some_keys));
    ARGUMENT_IS_NULL("keys", ifunc_target_options_set_tls(options, NULL));

    ifunc_source_options_destroy(NULL);
    IS_NULL(ifunc_source_options_set_timeout(NULL, 1));
    IS_NULL(ifunc_source_options_set_connect_timeout(NULL, 1));
    IS_NULL(ifunc_source_options_set_reconnect(NULL, 1));
    IS_NULL(ifunc_source_options_set_peer_timeout(NULL, 1));
    IS_NULL(ifunc_source_options_set_progress(NULL, 0));
    IS_NULL(ifunc_source_options_set_other_users(NULL, false));
    IS_NULL(ifunc_source_options_set_max_ring(NULL, 1));
    IS_NULL(ifunc_source_options_set_max_answers(NULL, 1));
    IS_NULL(ifunc_source_options_set_aggregation(NULL, 1, 1));

    /* What was there is not left behind as an object. */
    IS_NULL(ifunc_source_connect(NULL, NULL, &source));
    CHECK(!source);
    IS_NULL(ifunc_source_connect("loopback:x", NULL, NULL));
    ifunc_source_destroy(NULL);
    IS_NULL(ifunc_source_load(NULL, "add", &handle));
    IS_NULL(ifunc_source_load_path(NULL, "add.so", NULL, &handle));
    IS_NULL(ifunc_source_load_bytes(NULL, data, sizeof data, NULL, &handle));
    IS_NULL(ifunc_source_flush(NULL));
    IS_NULL(ifunc_source_flush_for(NULL, 1));
    IS_NULL(ifunc_source_push(NULL));
    CHECK(ifunc_source_transport(NULL, NULL, 0) == 0);
    IS_NULL(ifunc_source_target_stats(NULL, 1, &stats));
    IS_NULL(ifunc_source_finish(NULL, sends_nothing, NULL, &finished));

    ifunc_handle_destroy(NULL);
    CHECK(!ifunc_handle_name(NULL) && !ifunc_handle_id(NULL));
    CHECK(!ifunc_handle_image(NULL, &len) && len == 0 && !ifunc_handle_image(NULL, NULL));
    IS_NULL(ifunc_handle_with_timeout(NULL, 1, &handle));
    IS_NULL(ifunc_handle_aggregated(NULL, &handle));
    IS_NULL(ifunc_handle_with_hop_limit(NULL, 1, &handle));
    IS_NULL(ifunc_handle_send(NULL, NULL, 0));
    IS_NULL(ifunc_handle_try_send(NULL, NULL, 0));
    IS_NULL(ifunc_handle_call(NULL, NULL, 0, &call));
    IS_NULL(ifunc_handle_try_call(NULL, NULL, 0, &call));
    IS_NULL(ifunc_handle_call_wait(NULL, NULL, 0, NULL, 0, NULL));
    IS_NULL(ifunc_handle_stream(NULL, NULL, 0, &stream));

    IS_NULL(ifunc_call_wait(NULL));
    IS_NULL(ifunc_call_wait_for(NULL, 1));
    IS_NULL(ifunc_call_test(NULL));
    IS_NULL(ifunc_call_wait_all(NULL, 1, 1));
    OK(ifunc_call_wait_all(NULL, 0, 1));
    len = 7;
    CHECK(!ifunc_call_answer(NULL, &len) && len == 0 && !ifunc_call_answer(NULL, NULL));
    ifunc_call_destroy(NULL);

    IS_NULL(ifunc_message_create(NULL, NULL, 0, &message));
    IS_NULL(ifunc_message_set(NULL, NULL, 0));
    len = 7;
    CHECK(!ifunc_message_payload(NULL, &len) && len == 0);
    IS_NULL(ifunc_message_send(NULL, NULL));
    IS_NULL(ifunc_message_try_send(NULL, NULL));
    IS_NULL(ifunc_message_call(NULL, NULL, &call));
    IS_NULL(ifunc_message_try_call(NULL, NULL, &call));
    ifunc_message_destroy(NULL);

    IS_NULL(ifunc_stream_next(NULL, &part, &len));
    CHECK(!part && len == 0);
    IS_NULL(ifunc_stream_next(NULL, NULL, &len));
    IS_NULL(ifunc_stream_next(NULL, &part, NULL));
    ifunc_stream_destroy(NULL);
    IS_NULL(ifunc_scope_send(NULL, NULL, NULL, 0));
    IS_NULL(ifunc_scope_call(NULL, NULL, NULL, 0, &call));

    IS_NULL(ifunc_driver_create(NULL, &driver));
    CHECK(ifunc_driver_fd(NULL) == -1 && !ifunc_driver_progress(NULL) && !ifunc_driver_arm(NULL));
    CHECK(ifunc_driver_time_left(NULL) == 0);
    ifunc_driver_destroy(NULL);

    ifunc_target_options_destroy(NULL);
    IS_NULL(ifunc_target_options_accept_code(NULL));
    IS_NULL(ifunc_target_options_accept_code_of_every_peer(NULL));
    IS_NULL(ifunc_target_options_accept_if(NULL, never_valid, NULL));
    IS_NULL(ifunc_target_options_accept_if(options, NULL, NULL));
    IS_NULL(ifunc_target_options_connect_any_user(NULL));
    IS_NULL(ifunc_target_options_read_policy(NULL, "/policy.toml"));
    IS_NULL(ifunc_target_options_read_policy(options, NULL));
    FAILS(IFUNC_STATUS_POLICY, "/nonesuch.toml", ifunc_target_options_read_policy(options, "/nonesuch.toml"));
    IS_NULL(ifunc_target_options_set_target_type(NULL, "u64"));
    OK(ifunc_target_options_set_target_type(options, NULL));
    IS_NULL(ifunc_target_options_export_function(NULL, "f", NULL, some_function));
    IS_NULL(ifunc_target_options_export_function(options, NULL, NULL, some_function));
    IS_NULL(ifunc_target_options_export_function(options, "f", NULL, NULL));
    IS_NULL(ifunc_target_options_export_data(NULL, "d", NULL, data));
    IS_NULL(ifunc_target_options_export_data(options, NULL, NULL, data));
    IS_NULL(ifunc_target_options_export_data(options, "d", NULL, NULL));
    IS_NULL(ifunc_target_options_allow_set(NULL, IFUNC_SET_LIBC));
    IS_NULL(ifunc_target_options_allow_library(NULL, "libz.so.1"));
    IS_NULL(ifunc_target_options_allow_library(options, NULL));
    IS_NULL(ifunc_target_options_allow_remote_exports(NULL, true));
    IS_NULL(ifunc_target_options_set_max_payload(NULL, 1));
    IS_NULL(ifunc_target_options_set_max_image(NULL, 1));
    IS_NULL(ifunc_target_options_set_max_image_memory(NULL, 1));
    IS_NULL(ifunc_target_options_set_max_answer(NULL, 1));
    IS_NULL(ifunc_target_options_set_max_handles(NULL, 1));
    IS_NULL(ifunc_target_options_set_max_connections(NULL, 1));
    IS_NULL(ifunc_target_options_set_unfinished_bodies(NULL, 1, 1));
    IS_NULL(ifunc_target_options_set_code_per_connection(NULL, 1, 1));
    IS_NULL(ifunc_target_options_set_code_cache(NULL, 1, 1));
    IS_NULL(ifunc_target_options_set_stack(NULL, 1));
    IS_NULL(ifunc_target_options_set_outbox(NULL, 1));
    IS_NULL(ifunc_target_options_set_credits(NULL, 2));
    IS_NULL(ifunc_target_options_set_ring(NULL, 65536));
    IS_NULL(ifunc_target_options_set_max_run_time(NULL, 1));
    IS_NULL(ifunc_target_options_set_peer_timeout(NULL, 1));
    IS_NULL(ifunc_target_options_set_copy_payloads(NULL, true));
    IS_NULL(ifunc_target_options_set_share_stats(NULL, true));
    IS_NULL(ifunc_target_options_set_level(NULL, IFUNC_LEVEL_PANICS));
    IS_NULL(ifunc_target_options_set_timing(NULL, IFUNC_TIMING_ALL));
    IS_NULL(ifunc_target_options_set_runner_program(NULL, "runner"));
    IS_NULL(ifunc_target_options_set_runner_program(options, NULL));
    IS_NULL(ifunc_target_options_set_runner_memory(NULL, 1));
    IS_NULL(ifunc_target_options_set_runner_cpu_time(NULL, 1));
    IS_NULL(ifunc_target_options_set_max_runners(NULL, 1));
    IS_NULL(ifunc_target_options_set_without_landlock(NULL, true));
    IS_NULL(ifunc_target_options_set_on_escape(NULL, go_on, NULL));
    IS_NULL(ifunc_target_options_set_on_escape(options, NULL, NULL));

    IS_NULL(ifunc_target_listen(NULL, options, &target));
    IS_NULL(ifunc_target_listen("loopback:x", options, NULL));
    IS_NULL(ifunc_target_listen_on(NULL, NULL, &target));
    OK(ifunc_target_destroy(NULL));
    CHECK(!ifunc_target_address(NULL) && !ifunc_target_connections(NULL) && !ifunc_target_images(NULL));
    IS_NULL(ifunc_target_poll(NULL, NULL, NULL));
    IS_NULL(ifunc_target_serve(NULL, NULL));
    IS_NULL(ifunc_target_serve_until(NULL, NULL, never_done, NULL));
    IS_NULL(ifunc_target_serve_shared(NULL, NULL, 1));
    ifunc_target_stop(NULL);
    IS_NULL(ifunc_target_wait(NULL, 1));
    CHECK(ifunc_target_fd(NULL) == -1 && !ifunc_target_arm(NULL) && ifunc_target_poll_interval(NULL) == 0);
    ifunc_target_disarm(NULL);
    IS_NULL(ifunc_target_stats(NULL, &stats));
    IS_NULL(ifunc_target_add_function(NULL, "f", NULL, some_function));
    IS_NULL(ifunc_target_add_data(NULL, "d", NULL, data));
    IS_NULL(ifunc_target_replace_function(NULL, "f", NULL, some_function));
    IS_NULL(ifunc_target_replace_data(NULL, "d", NULL, data));
    IS_NULL(ifunc_target_remove_export(NULL, "f"));
    IS_NULL(ifunc_target_replace_policy(NULL, options));
    IS_NULL(ifunc_target_connect(NULL, "loopback:x", NULL, &source));

    IS_NULL(ifunc_group_create(0, NULL));
    IS_NULL(ifunc_group_launched(NULL));
    IS_NULL(ifunc_group_add_node(NULL, 1, "loopback:x"));
    IS_NULL(ifunc_group_set_timeout(NULL, 1));
    IS_NULL(ifunc_group_set_on_demand(NULL));
    CHECK(ifunc_group_number(NULL) == UINT32_MAX);
    ifunc_group_destroy(NULL);
    IS_NULL(ifunc_target_join(NULL, NULL));
    IS_NULL(ifunc_target_add_node(NULL, 1, "loopback:x"));
    IS_NULL(ifunc_target_node_source(NULL, 1, &source));
    OK(ifunc_group_create(0, &group));
    IS_NULL(ifunc_group_add_node(group, 1, NULL));
    ifunc_group_destroy(group);

    IS_NULL(ifunc_worker_attach(NULL, NULL, 1, 0, &worker));
    IS_NULL(ifunc_worker_attach((struct ucp_context *)data, NULL, 1, 0, &worker));
    ARGUMENT_IS_NULL("attached", ifunc_worker_attach((struct ucp_context *)data, (struct ucp_worker *)data, 1, 0, NULL));
    CHECK(!worker && !ifunc_worker_poll(NULL));
    IS_NULL(ifunc_worker_peer_gone(NULL, (struct ucp_ep *)data));
    ARGUMENT_IS_NULL("ep", ifunc_worker_peer_gone((ifunc_worker *)data, NULL));
    IS_NULL(ifunc_worker_close(NULL));
    ifunc_worker_destroy(NULL);
    IS_NULL(ifunc_source_connect_over(NULL, NULL, NULL, &source));
    IS_NULL(ifunc_connecting_start(NULL, NULL, NULL, &connecting));
    ARGUMENT_IS_NULL("source", ifunc_source_connect_over((ifunc_worker *)data, (struct ucp_ep *)data, NULL, NULL));
    ARGUMENT_IS_NULL("ep", ifunc_source_connect_over((ifunc_worker *)data, NULL, NULL, &source));
    ARGUMENT_IS_NULL("connecting", ifunc_connecting_start((ifunc_worker *)data, (struct ucp_ep *)data, NULL, NULL));
    ARGUMENT_IS_NULL("ep", ifunc_connecting_start((ifunc_worker *)data, NULL, NULL, &connecting));
    ARGUMENT_IS_NULL("target", ifunc_target_listen_on((ifunc_worker *)data, NULL, NULL));
    IS_NULL(ifunc_connecting_poll(NULL, &source));
    ARGUMENT_IS_NULL("source", ifunc_connecting_poll((ifunc_connecting *)data, NULL));
    ifunc_connecting_destroy(NULL);

    IS_NULL(ifunc_stats_totals(NULL, &totals));
    CHECK(!ifunc_stats_source_count(NULL) && !ifunc_stats_entry_count(NULL));
    IS_NULL(ifunc_stats_source(NULL, 0, &source_counts));
    IS_NULL(ifunc_stats_source(NULL, 0, NULL));
    IS_NULL(ifunc_stats_entry(NULL, 0, &entry));
    ifunc_stats_destroy(NULL);
    ifunc_target_options_destroy(options);
}

static int in_scope(ifunc_scope *scope, void *user)
{
    struct objects *all = user;
    ifunc_call *call;
    ARGUMENT_IS_NULL("handle", ifunc_scope_send(scope, NULL, NULL, 0));
    ARGUMENT_IS_NULL("handle", ifunc_scope_call(scope, NULL, NULL, 0, &call));
    ARGUMENT_IS_NULL("call", ifunc_scope_call(scope, all->add, NULL, 0, NULL));
    ARGUMENT_IS_NULL("args", ifunc_scope_send(scope, all->add, NULL, 8));
    return 0;
}

/* The arguments behind the first one: out pointers, names, functions. */
static void every_other_argument(void)
{
    struct serving serving;
    struct objects all;
    ifunc_target_options *options = accepting();
    ifunc_target *target;
    ifunc_source *source = NULL;
    ifunc_handle *add, *other;
    ifunc_call *call;
    ifunc_message *message;
    ifunc_stream *stream;
    ifunc_finished finished;
    ifunc_stats *stats;
    uint64_t one = 1, data = 0;
    const void *part;
    size_t len;

    start(&serving, address_of("loopback:nulls"), options);
    target = serving.target;
    all.source = source = connected(ifunc_target_address(target));
    all.add = add = loaded(source, "add");

    ARGUMENT_IS_NULL("driver", ifunc_driver_create(source, NULL));
    ARGUMENT_IS_NULL("handle", ifunc_source_load_path(source, "add.so", NULL, NULL));
    ARGUMENT_IS_NULL("handle", ifunc_source_load_bytes(source, &one, sizeof one, NULL, NULL));
    ARGUMENT_IS_NULL("bytes", ifunc_source_load_bytes(source, NULL, 8, NULL, &other));
    ARGUMENT_IS_NULL("path", ifunc_source_load_path(source, NULL, NULL, &other));
    ARGUMENT_IS_NULL("name", ifunc_source_load(source, NULL, &other));
    ARGUMENT_IS_NULL("handle", ifunc_source_load(source, "add", NULL));
    ARGUMENT_IS_NULL("stats", ifunc_source_target_stats(source, GENEROUS, NULL));
    ARGUMENT_IS_NULL("send", ifunc_source_finish(source, NULL, NULL, &finished));
    OK(ifunc_source_finish(source, in_scope, &all, NULL));

    ARGUMENT_IS_NULL("other", ifunc_handle_with_timeout(add, 1, NULL));
    ARGUMENT_IS_NULL("other", ifunc_handle_aggregated(add, NULL));
    ARGUMENT_IS_NULL("other", ifunc_handle_with_hop_limit(add, 1, NULL));
    ARGUMENT_IS_NULL("call", ifunc_handle_call(add, &one, sizeof one, NULL));
    ARGUMENT_IS_NULL("call", ifunc_handle_try_call(add, &one, sizeof one, NULL));
    ARGUMENT_IS_NULL("stream", ifunc_handle_stream(add, &one, sizeof one, NULL));
    ARGUMENT_IS_NULL("message", ifunc_message_create(add, &one, sizeof one, NULL));
    OK(ifunc_handle_stream(add, &one, sizeof one, &stream));
    ARGUMENT_IS_NULL("part", ifunc_stream_next(stream, NULL, &len));
    ARGUMENT_IS_NULL("len", ifunc_stream_next(stream, &part, NULL));
    ifunc_stream_destroy(stream);
    OK(ifunc_handle_call(add, &one, sizeof one, &call));
    ARGUMENT_IS_NULL("calls", ifunc_call_wait_all(NULL, 1, GENEROUS));
    OK(ifunc_call_wait(call));
    CHECK(ifunc_call_answer(call, NULL));
    ifunc_call_destroy(call);

    OK(ifunc_message_create(add, &one, sizeof one, &message));
    CHECK(ifunc_message_payload(message, NULL));
    ARGUMENT_IS_NULL("call", ifunc_message_call(message, NULL, NULL));
    ARGUMENT_IS_NULL("call", ifunc_message_try_call(message, NULL, NULL));
    ifunc_message_destroy(message);

    ARGUMENT_IS_NULL("stats", ifunc_target_stats(target, NULL));
    OK(ifunc_target_stats(target, &stats));
    ARGUMENT_IS_NULL("totals", ifunc_stats_totals(stats, NULL));
    ARGUMENT_IS_NULL("source", ifunc_stats_source(stats, 0, NULL));
    ARGUMENT_IS_NULL("entry", ifunc_stats_entry(stats, 0, NULL));
    ifunc_stats_destroy(stats);
    ARGUMENT_IS_NULL("done", ifunc_target_serve_until(target, NULL, NULL, NULL));
    ARGUMENT_IS_NULL("options", ifunc_target_replace_policy(target, NULL));
    ARGUMENT_IS_NULL("name", ifunc_target_add_function(target, NULL, NULL, some_function));
    ARGUMENT_IS_NULL("function", ifunc_target_add_function(target, "f", NULL, NULL));
    ARGUMENT_IS_NULL("name", ifunc_target_add_data(target, NULL, NULL, &data));
    ARGUMENT_IS_NULL("data", ifunc_target_add_data(target, "d", NULL, NULL));
    ARGUMENT_IS_NULL("name", ifunc_target_replace_function(target, NULL, NULL, some_function));
    ARGUMENT_IS_NULL("function", ifunc_target_replace_function(target, "f", NULL, NULL));
    ARGUMENT_IS_NULL("name", ifunc_target_replace_data(target, NULL, NULL, &data));
    ARGUMENT_IS_NULL("data", ifunc_target_replace_data(target, "d", NULL, NULL));
    ARGUMENT_IS_NULL("name", ifunc_target_remove_export(target, NULL));
    ARGUMENT_IS_NULL("address", ifunc_target_add_node(target, 1, NULL));
    ARGUMENT_IS_NULL("source", ifunc_target_node_source(target, 1, NULL));
    ARGUMENT_IS_NULL("address", ifunc_target_connect(target, NULL, NULL, &source));
    ARGUMENT_IS_NULL("source", ifunc_target_connect(target, "loopback:x", NULL, NULL));
    ARGUMENT_IS_NULL("target", ifunc_target_listen("loopback:x", options, NULL));
    /* Without options. */
    OK(ifunc_target_listen(address_of("loopback:default"), NULL, &target));
    OK(ifunc_target_destroy(target));
    ifunc_target_options_destroy(options);
    ifunc_handle_destroy(add);
    ifunc_source_destroy(all.source);
    stop(&serving);
}

int main(void)
{
    every_function();
    every_other_argument();
    print_met();
    puts("nulls passed");
    return 0;
}
