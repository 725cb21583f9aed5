/* Uses every function of ifunc_rt.h, and meets most of its statuses. `nulls.c`, `statuses.c` and `own_worker.c` meet the others. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>

/* ---- What the library says about itself ---- */

static void *first_error_of_a_thread(void *arg)
{
    (void)arg;
    CHECK(!strcmp(ifunc_rt_last_error(), "") && !ifunc_rt_last_reason());
    IS_NULL(ifunc_source_flush(NULL));
    return NULL;
}

static void about(void)
{
    pthread_t thread;
    CHECK(!strcmp(ifunc_rt_last_error(), "") && !ifunc_rt_last_reason());
    CHECK(strchr(ifunc_rt_version(), '.'));
    CHECK(!strcmp(ifunc_status_name(IFUNC_STATUS_OK), "IFUNC_STATUS_OK"));
    CHECK(!strcmp(ifunc_status_name(IFUNC_STATUS_TIMEOUT), "IFUNC_STATUS_TIMEOUT"));
    CHECK(!strcmp(ifunc_status_name(12345), "(unknown status)"));
    CHECK(!pthread_create(&thread, NULL, first_error_of_a_thread, NULL) && !pthread_join(thread, NULL));
    CHECK(!strcmp(ifunc_rt_last_error(), ""));
}

/* ---- Values that cannot be ---- */

static void some_function(void)
{
}

static void invalid_values(void)
{
    int data = 0;
    ifunc_source *source;
    ifunc_target *target;
    ifunc_worker *worker;
    ifunc_group *group;
    ifunc_source_options *source_options = ifunc_source_options_create();
    ifunc_target_options *options = accepting();

    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "7 is no `ifunc_progress`", ifunc_source_options_set_progress(source_options, 7));
    FAILS(IFUNC_STATUS_INVALID_ADDRESS, "nowhere", ifunc_source_connect("nowhere", NULL, &source));
    FAILS(IFUNC_STATUS_INVALID_ADDRESS, "nowhere", ifunc_target_listen("nowhere", NULL, &target));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "not UTF-8", ifunc_source_connect("shm:\xff", NULL, &source));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "unknown flags",
          ifunc_worker_attach((struct ucp_context *)&data, (struct ucp_worker *)&data, 1, 64, &worker));
    OK(ifunc_source_options_set_connect_timeout(source_options, 0));
    FAILS(IFUNC_STATUS_UNREACHABLE, "help: ", ifunc_source_connect(address_of("loopback:nobody"), source_options, &source));

    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "3 is no `ifunc_level`", ifunc_target_options_set_level(options, 3));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "3 is no `ifunc_timing`", ifunc_target_options_set_timing(options, 3));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "3 is no `ifunc_set`", ifunc_target_options_allow_set(options, 3));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "is empty", ifunc_target_options_export_data(options, "", NULL, &data));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "not the type of `level`",
          ifunc_target_options_export_data(options, "level", "fn level()", &data));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "not the type of `level`",
          ifunc_target_options_export_function(options, "level", "static level:u32", some_function));

    /* Each is met when the target is made. */
    OK(ifunc_target_options_export_data(options, "level", "static level:u32", &data));
    OK(ifunc_target_options_export_function(options, "level", NULL, some_function));
    FAILS(IFUNC_STATUS_EXPORT, "two exports have the name `level`",
          ifunc_target_listen(address_of("loopback:twice"), options, &target));
    ifunc_target_options_destroy(options);
    options = accepting();
    OK(ifunc_target_options_set_ring(options, 12345));
    FAILS(IFUNC_STATUS_LIMIT, "power", ifunc_target_listen(address_of("loopback:ring"), options, &target));
    ifunc_target_options_destroy(options);
    options = accepting();
    OK(ifunc_target_options_allow_library(options, "no soname/"));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "no soname/", ifunc_target_listen(address_of("loopback:soname"), options, &target));
    ifunc_target_options_destroy(options);
    setenv("IFUNC_CREDITS", "many", 1);
    FAILS(IFUNC_STATUS_ENVIRONMENT, "IFUNC_CREDITS=many", ifunc_target_listen(address_of("loopback:many"), NULL, &target));
    unsetenv("IFUNC_CREDITS");

    OK(ifunc_target_listen(address_of("loopback:one"), NULL, &target));
    CHECK(!strcmp(ifunc_target_address(target), address_of("loopback:one")));
    {
        ifunc_target *second;
        FAILS(IFUNC_STATUS_ADDRESS_IN_USE, "in use", ifunc_target_listen(address_of("loopback:one"), NULL, &second));
        CHECK(!second);
        OK(ifunc_group_create(3, &group));
        CHECK(ifunc_group_number(group) == 3);
        FAILS(IFUNC_STATUS_INVALID_ADDRESS, "nowhere", ifunc_group_add_node(group, 4, "nowhere"));
        FAILS(IFUNC_STATUS_GROUP, "largest number", ifunc_group_add_node(group, UINT32_MAX, "loopback:x"));
        FAILS(IFUNC_STATUS_GROUP, "has joined no group", ifunc_target_add_node(target, 4, "loopback:x"));
        FAILS(IFUNC_STATUS_GROUP, "has joined no group", ifunc_target_node_source(target, 4, &source));
        IS_NULL(ifunc_target_join(target, NULL));
        ifunc_group_destroy(group);
        FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "`threads` is 0", ifunc_target_serve_shared(target, NULL, 0));
        IS_NULL(ifunc_target_serve_until(target, NULL, NULL, NULL));
    }
    OK(ifunc_target_destroy(target));
    unsetenv("IFUNC_RANK");
    FAILS(IFUNC_STATUS_GROUP, "no launcher", ifunc_group_launched(&group));
    ifunc_source_options_destroy(source_options);
}

/* ---- Sending and calling ---- */

static void sends_and_calls(const char *address)
{
    struct serving serving;
    ifunc_target_options *options = accepting();
    ifunc_source *source;
    ifunc_handle *add, *echo, *other;
    ifunc_call *call, *calls[3];
    ifunc_message *message;
    uint64_t five = 5, answer = 0;
    const uint64_t *found;
    size_t len = 0;
    char text[64], small[2], *payload;
    int i;

    start(&serving, address, options);
    ifunc_target_options_destroy(options);
    source = connected(address);
    add = loaded(source, "add");
    echo = loaded(source, "echo");
    CHECK(!strcmp(ifunc_handle_name(add), "add") && ifunc_handle_id(add));
    CHECK(ifunc_handle_image(add, &len) && len > 64);

    OK(ifunc_handle_call_wait(add, &five, sizeof five, &answer, sizeof answer, &len));
    CHECK(answer == 5 && len == sizeof answer);
    OK(ifunc_handle_call_wait(add, &five, sizeof five, &answer, sizeof answer, NULL));
    OK(ifunc_handle_send(add, &five, sizeof five));
    OK(ifunc_handle_try_send(add, &five, sizeof five));
    OK(ifunc_source_flush(source));
    OK(ifunc_source_flush_for(source, GENEROUS));
    CHECK(ifunc_source_transport(source, text, sizeof text) == strlen(text) && *text);
    CHECK(ifunc_source_transport(source, small, sizeof small) == strlen(text));
    CHECK(small[0] == text[0] && small[1] == 0 && ifunc_source_transport(source, NULL, 0) == strlen(text));

    /* Calls: wait, test, wait for several; the result stays. */
    OK(ifunc_handle_call(add, &five, sizeof five, &call));
    OK(ifunc_call_wait(call));
    OK(ifunc_call_wait(call));
    OK(ifunc_call_test(call));
    OK(ifunc_call_wait_for(call, 0));
    found = ifunc_call_answer(call, &len);
    CHECK(len == sizeof answer && *found == 25 && ifunc_call_answer(call, NULL) == found);
    ifunc_call_destroy(call);
    OK(ifunc_handle_try_call(add, &five, sizeof five, &call));
    for (;;) {
        ifunc_status status = ifunc_call_test(call);
        if (status == IFUNC_STATUS_OK)
            break;
        CHECK(status == IFUNC_STATUS_IN_PROGRESS && !ifunc_call_answer(call, NULL));
        usleep(100);
    }
    ifunc_call_destroy(call);
    for (i = 0; i < 3; i++)
        OK(ifunc_handle_call(add, &five, sizeof five, &calls[i]));
    OK(ifunc_call_wait_all(calls, 3, GENEROUS));
    found = ifunc_call_answer(calls[2], NULL);
    CHECK(*found == 45);
    for (i = 0; i < 3; i++)
        ifunc_call_destroy(calls[i]);
    /* No call waits for it. */
    OK(ifunc_handle_call(add, &five, sizeof five, &call));
    ifunc_call_destroy(call);

    /* Answers of any length, and memory that is too small. */
    OK(ifunc_handle_call_wait(echo, NULL, 0, NULL, 0, &len));
    CHECK(len == 0);
    OK(ifunc_handle_call(echo, NULL, 0, &call));
    OK(ifunc_call_wait(call));
    CHECK(ifunc_call_answer(call, &len) && len == 0);
    ifunc_call_destroy(call);
    FAILS(IFUNC_STATUS_TRUNCATED, "11 bytes", ifunc_handle_call_wait(echo, "hello there", 11, text, 5, &len));
    CHECK(len == 11 && !memcmp(text, "hello", 5));
    FAILS(IFUNC_STATUS_TRUNCATED, "room for 0", ifunc_handle_call_wait(echo, "hello", 5, NULL, 0, &len));

    /* Messages. */
    OK(ifunc_message_create(echo, "some bytes", 10, &message));
    payload = ifunc_message_payload(message, &len);
    CHECK(len == 10);
    payload[0] = 'S';
    OK(ifunc_message_send(message, NULL));
    OK(ifunc_message_try_send(message, echo));
    for (i = 0; i < 2; i++) {
        ifunc_status status = i ? ifunc_message_try_call(message, NULL, &call) : ifunc_message_call(message, echo, &call);
        CHECK(status == IFUNC_STATUS_OK);
        OK(ifunc_call_wait(call));
        CHECK(!memcmp(ifunc_call_answer(call, &len), "Some bytes", 10) && len == 10);
        ifunc_call_destroy(call);
    }
    OK(ifunc_message_set(message, "others", 6));
    OK(ifunc_message_call(message, NULL, &call));
    OK(ifunc_call_wait(call));
    CHECK(!memcmp(ifunc_call_answer(call, &len), "others", 6) && len == 6);
    ifunc_call_destroy(call);
    FAILS(IFUNC_STATUS_OTHER_IFUNC, "`echo`", ifunc_message_send(message, add));
    FAILS(IFUNC_STATUS_OTHER_IFUNC, "`add`", ifunc_message_call(message, add, &call));
    CHECK(!call);
    {
        /* The same message to a second connection. */
        ifunc_source *second = connected(address);
        ifunc_handle *there = loaded(second, "echo");
        OK(ifunc_message_call(message, there, &call));
        OK(ifunc_call_wait(call));
        CHECK(!memcmp(ifunc_call_answer(call, &len), "others", 6));
        ifunc_call_destroy(call);
        ifunc_handle_destroy(there);
        ifunc_source_destroy(second);
    }
    ifunc_message_destroy(message);

    /* Handles that are made of a handle, and outlive it. */
    OK(ifunc_handle_aggregated(add, &other));
    for (i = 0; i < 100; i++)
        OK(ifunc_handle_send(other, &five, sizeof five));
    OK(ifunc_source_push(source));
    OK(ifunc_handle_call_wait(other, &five, sizeof five, &answer, sizeof answer, NULL));
    CHECK(answer == 50 + 5 * 101);
    ifunc_handle_destroy(other);
    OK(ifunc_handle_with_hop_limit(add, 3, &other));
    ifunc_handle_destroy(add);
    add = other;
    OK(ifunc_handle_with_timeout(add, GENEROUS, &other));
    ifunc_handle_destroy(add);
    OK(ifunc_handle_call_wait(other, &five, sizeof five, &answer, sizeof answer, NULL));

    /* A call outlives its handle and its source. */
    OK(ifunc_handle_call(other, &five, sizeof five, &call));
    ifunc_handle_destroy(other);
    ifunc_handle_destroy(echo);
    ifunc_source_destroy(source);
    OK(ifunc_call_wait(call));
    ifunc_call_destroy(call);
    stop(&serving);
    CHECK(serving.state.counter == 50 + 5 * 103);
}

/* ---- What goes wrong between a source and its target ---- */

struct escapes {
    int count;
    uint32_t why;
    void *target_args;
    char ifunc[64];
};

static int note_escape(const ifunc_escaped *escaped, void *user)
{
    struct escapes *escapes = user;
    escapes->count++;
    escapes->why = escaped->why;
    escapes->target_args = escaped->target_args;
    snprintf(escapes->ifunc, sizeof escapes->ifunc, "%s", escaped->ifunc);
    CHECK(*escaped->detail && escaped->source.connection > 0);
    return 0;
}

#define REJECTED(reason, text, call)                                                                                   \
    do {                                                                                                               \
        FAILS(IFUNC_STATUS_REJECTED, text, call);                                                                      \
        CHECK(ifunc_rt_last_reason() == (reason));                                                                     \
    } while (0)

/* Calls, and expects a failure of the ifunc that the host is told of. */
static void escapes_by(ifunc_source *source, const char *name, ifunc_status status, uint32_t reason, struct escapes *escapes,
                       uint32_t why, const void *state)
{
    ifunc_handle *handle = loaded(source, name);
    int before = escapes->count;
    expect(__LINE__, name, ifunc_handle_call_wait(handle, NULL, 0, NULL, 0, NULL), status, name);
    CHECK(ifunc_rt_last_reason() == reason);
    CHECK(escapes->count == before + 1 && escapes->why == why && escapes->target_args == state);
    CHECK(!strcmp(escapes->ifunc, name));
    ifunc_handle_destroy(handle);
}

static void failures(bool crash)
{
    struct serving serving;
    struct escapes escapes;
    const char *address = address_of("loopback:failures");
    ifunc_target_options *options = accepting();
    ifunc_source_options *source_options = ifunc_source_options_create();
    ifunc_source *source;
    ifunc_handle *add, *ask, *args, *echo, *missing;
    ifunc_call *call;
    uint64_t said[2], five = 5;
    char big[8192] = "";
    size_t len;
    FILE *file;

    memset(&escapes, 0, sizeof escapes);
    OK(ifunc_target_options_allow_set(options, IFUNC_SET_LIBC));
    OK(ifunc_target_options_set_level(options, IFUNC_LEVEL_CONTAINED));
    OK(ifunc_target_options_set_max_run_time(options, IFUNC_MILLISECONDS(100)));
    OK(ifunc_target_options_set_on_escape(options, note_escape, &escapes));
    OK(ifunc_target_options_set_max_answer(options, 4096));
    OK(ifunc_target_options_set_max_payload(options, 4096));
    OK(ifunc_target_options_set_target_type(options, "u64"));
    start(&serving, address, options);
    ifunc_target_options_destroy(options);
    OK(ifunc_source_options_set_timeout(source_options, GENEROUS));
    OK(ifunc_source_options_set_peer_timeout(source_options, GENEROUS));
    OK(ifunc_source_options_set_other_users(source_options, false));
    OK(ifunc_source_options_set_max_ring(source_options, 64 << 20));
    OK(ifunc_source_options_set_max_answers(source_options, 1 << 20));
    OK(ifunc_source_options_set_aggregation(source_options, 4096, IFUNC_MICROSECONDS(50)));
    OK(ifunc_source_options_set_progress(source_options, IFUNC_PROGRESS_CALLER));
    OK(ifunc_source_connect(address, source_options, &source));
    ifunc_source_options_destroy(source_options);
    IS_NULL(ifunc_source_finish(source, NULL, NULL, NULL));

    /* Libraries. */
    FAILS(IFUNC_STATUS_NO_LIBRARY, "no library `nonesuch.so`", ifunc_source_load(source, "nonesuch", &missing));
    FAILS(IFUNC_STATUS_NO_LIBRARY, "/nonesuch.so", ifunc_source_load_path(source, "/nonesuch.so", NULL, &missing));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "is not the name of an ifunc", ifunc_source_load(source, "not a name", &missing));
    FAILS(IFUNC_STATUS_BAD_LIBRARY, "is not an ifunc library", ifunc_source_load_bytes(source, "hello", 5, NULL, &missing));
    FAILS(IFUNC_STATUS_LIBRARY_OPEN, "nowhere_to_be_found", ifunc_source_load(source, "unresolved", &missing));
    IS_NULL(ifunc_source_load(source, NULL, &missing));
    IS_NULL(ifunc_source_load(source, "add", NULL));
    IS_NULL(ifunc_source_load_path(source, NULL, NULL, &missing));
    IS_NULL(ifunc_source_load_bytes(source, NULL, 5, NULL, &missing));
    CHECK(!missing);

    /* By path, with and without a name, and by bytes, whose arguments are the payload. */
    snprintf(big, sizeof big, "%s/add.so", getenv("IFUNC_LIB_DIR"));
    OK(ifunc_source_load_path(source, big, NULL, &add));
    ifunc_handle_destroy(add);
    FAILS(IFUNC_STATUS_BAD_LIBRARY, "`nobody`", ifunc_source_load_path(source, big, "nobody", &add));
    OK(ifunc_source_load_path(source, big, "add", &add));
    {
        static char library[1 << 20];
        file = fopen(big, "rb");
        CHECK(file);
        len = fread(library, 1, sizeof library, file);
        fclose(file);
        FAILS(IFUNC_STATUS_BAD_LIBRARY, "`nobody`", ifunc_source_load_bytes(source, library, len, "nobody", &missing));
        OK(ifunc_source_load_bytes(source, library, len, "add", &missing));
        CHECK(!memcmp(ifunc_handle_id(missing), ifunc_handle_id(add), 32));
        OK(ifunc_handle_call_wait(missing, &five, sizeof five, said, sizeof said, NULL));
        CHECK(said[0] == 5);
        ifunc_handle_destroy(missing);
        OK(ifunc_source_load_bytes(source, library, len, NULL, &missing));
        ifunc_handle_destroy(missing);
        {
            const void *image = ifunc_handle_image(add, &len);
            OK(ifunc_source_load_bytes(source, image, len, NULL, &missing));
            ifunc_handle_destroy(missing);
        }
    }

    /* What `payload_init` gets is what was passed: a null pointer, a pointer with a length of 0, and both. */
    args = loaded(source, "args");
    OK(ifunc_handle_call_wait(args, NULL, 0, said, sizeof said, &len));
    CHECK(len == sizeof said && said[0] == 0 && said[1] == 0);
    OK(ifunc_handle_call_wait(args, &five, 0, said, sizeof said, NULL));
    CHECK(said[0] == (uintptr_t)&five && said[1] == 0);
    OK(ifunc_handle_call_wait(args, big, 6, said, sizeof said, NULL));
    CHECK(said[0] == (uintptr_t)big && said[1] == 6);
    FAILS(IFUNC_STATUS_PAYLOAD, "`args_payload_init` refused the arguments: it returned 7", ifunc_handle_call(args, big, 7, &call));
    CHECK(ifunc_rt_last_reason() == 7 && !call);
    FAILS(IFUNC_STATUS_PAYLOAD, "returned 9", ifunc_handle_send(args, big, 9));
    FAILS(IFUNC_STATUS_NULL_ARGUMENT, "`args`", ifunc_handle_send(args, NULL, 9));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "`args`", ifunc_handle_send(args, big, SIZE_MAX));
    ifunc_handle_destroy(args);

    /* Failures of the ifunc. */
    FAILS(IFUNC_STATUS_FAILED, "does not decode", ifunc_handle_call_wait(add, big, 3, NULL, 0, NULL));
    CHECK(ifunc_rt_last_reason() == IFUNC_FAILURE_PAYLOAD && escapes.count == 0);
    OK(ifunc_handle_call(add, big, 3, &call));
    FAILS(IFUNC_STATUS_FAILED, "does not decode", ifunc_call_wait(call));
    IS_NULL(ifunc_source_flush(NULL));
    /* The status of a call stays, and its text. */
    FAILS(IFUNC_STATUS_FAILED, "does not decode", ifunc_call_test(call));
    FAILS(IFUNC_STATUS_FAILED, "does not decode", ifunc_call_wait_all(&call, 1, 0));
    CHECK(!ifunc_call_answer(call, NULL) && ifunc_rt_last_reason() == IFUNC_FAILURE_PAYLOAD);
    ifunc_call_destroy(call);
    escapes_by(source, "aborts", IFUNC_STATUS_PANIC, 0, &escapes, IFUNC_FAILURE_PANIC, &serving.state);
    if (crash)
        escapes_by(source, "crashes", IFUNC_STATUS_FAILED, IFUNC_FAILURE_FAULT, &escapes, IFUNC_FAILURE_FAULT, &serving.state);
    escapes_by(source, "spins", IFUNC_STATUS_FAILED, IFUNC_FAILURE_DEADLINE, &escapes, IFUNC_FAILURE_DEADLINE,
               &serving.state);

    /* Limits of the target. */
    echo = loaded(source, "echo");
    FAILS(IFUNC_STATUS_TOO_LARGE, "8192 bytes", ifunc_handle_call_wait(echo, big, sizeof big, NULL, 0, NULL));
    OK(ifunc_handle_call_wait(echo, big, 4096, big, sizeof big, NULL));
    ifunc_handle_destroy(echo);

    /* A missing import; and the send that failed is reported by a later one, which is not sent: the call receives the report. */
    ask = loaded(source, "ask");
    REJECTED(IFUNC_REJECTION_MISSING_IMPORT, "`host_ask`", ifunc_handle_call_wait(ask, &five, sizeof five, NULL, 0, NULL));
    OK(ifunc_handle_send(ask, &five, sizeof five));
    OK(ifunc_handle_call_wait(add, &five, sizeof five, said, sizeof said, NULL));
    FAILS(IFUNC_STATUS_EARLIER, "host_ask", ifunc_handle_send(add, &five, sizeof five));
    CHECK(ifunc_rt_last_reason() == IFUNC_REJECTION_MISSING_IMPORT);
    OK(ifunc_handle_send(ask, &five, sizeof five));
    REJECTED(IFUNC_REJECTION_MISSING_IMPORT, "host_ask", ifunc_source_flush(source));
    OK(ifunc_source_flush(source));
    ifunc_handle_destroy(ask);
    CHECK(serving.state.counter == said[0]);

    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);
    stop(&serving);
}

/* ---- One thread that polls its target, and uses its source ---- */

static void one_thread(void)
{
    const char *address = address_of("shm:ifunc-capi-one");
    ifunc_target_options *options = accepting();
    ifunc_source_options *source_options = ifunc_source_options_create();
    ifunc_target *target;
    ifunc_source *source;
    ifunc_handle *add, *whose, *impatient;
    ifunc_call *call;
    struct state state = {0};
    uint64_t one = 1;
    size_t handled = 7, sent;
    void *const *pointer;
    struct pollfd fd;

    OK(ifunc_target_options_set_credits(options, 8));
    OK(ifunc_target_options_set_ring(options, 65536));
    OK(ifunc_target_listen(address, options, &target));
    ifunc_target_options_destroy(options);
    OK(ifunc_target_poll(target, NULL, &handled));
    CHECK(handled == 0 && ifunc_target_connections(target) == 0 && ifunc_target_images(target) == 0);
    FAILS(IFUNC_STATUS_IN_PROGRESS, "", ifunc_target_wait(target, IFUNC_MILLISECONDS(1)));
    OK(ifunc_source_options_set_reconnect(source_options, 0));
    OK(ifunc_source_connect(address, source_options, &source));
    ifunc_source_options_destroy(source_options);
    add = loaded(source, "add");

    /* No thread polls: the wait ends, and not the call. */
    OK(ifunc_handle_with_timeout(add, IFUNC_MILLISECONDS(1), &impatient));
    OK(ifunc_handle_call(impatient, &one, sizeof one, &call));
    FAILS(IFUNC_STATUS_TIMEOUT, "`add` did not end", ifunc_call_wait(call));
    FAILS(IFUNC_STATUS_TIMEOUT, "`add` did not end", ifunc_call_wait_for(call, 1));
    FAILS(IFUNC_STATUS_TIMEOUT, "`add` did not end", ifunc_call_wait_all(&call, 1, 1));
    FAILS(IFUNC_STATUS_IN_PROGRESS, "", ifunc_call_test(call));
    FAILS(IFUNC_STATUS_TIMEOUT, "did not end", ifunc_source_flush_for(source, 1));
    OK(ifunc_target_wait(target, GENEROUS));
    while (ifunc_call_test(call) != IFUNC_STATUS_OK)
        OK(ifunc_target_poll(target, &state, NULL));
    CHECK(state.counter == 1 && ifunc_target_connections(target) == 1 && ifunc_target_images(target) == 1);
    ifunc_call_destroy(call);
    ifunc_handle_destroy(impatient);

    /* No credit. */
    for (sent = 0; ifunc_handle_try_send(add, &one, sizeof one) == IFUNC_STATUS_OK; sent++)
        CHECK(sent < 1000);
    FAILS(IFUNC_STATUS_WOULD_BLOCK, "no credit", ifunc_handle_try_send(add, &one, sizeof one));
    FAILS(IFUNC_STATUS_WOULD_BLOCK, "no credit", ifunc_handle_try_call(add, &one, sizeof one, &call));
    {
        ifunc_message *message;
        OK(ifunc_message_create(add, &one, sizeof one, &message));
        FAILS(IFUNC_STATUS_WOULD_BLOCK, "no credit", ifunc_message_try_send(message, NULL));
        FAILS(IFUNC_STATUS_WOULD_BLOCK, "no credit", ifunc_message_try_call(message, add, &call));
        ifunc_message_destroy(message);
    }

    /* The descriptor. */
    CHECK(!ifunc_target_arm(target));
    ifunc_target_disarm(target);
    while (state.counter < 1 + sent)
        OK(ifunc_target_poll(target, &state, &handled));
    while (!ifunc_target_arm(target)) {
        ifunc_target_disarm(target);
        OK(ifunc_target_poll(target, &state, NULL));
    }
    fd.fd = ifunc_target_fd(target);
    fd.events = POLLIN;
    CHECK(fd.fd >= 0 && ifunc_target_poll_interval(target) > 0);
    CHECK(poll(&fd, 1, 0) == 0);
    OK(ifunc_handle_send(add, &one, sizeof one));
    CHECK(poll(&fd, 1, 60000) == 1);
    ifunc_target_disarm(target);
    while (state.counter < 2 + sent)
        OK(ifunc_target_poll(target, &state, NULL));

    /* Any pointer is the target arguments: also null. */
    whose = loaded(source, "whose");
    for (handled = 0; handled < 2; handled++) {
        void *mine = handled ? &state : NULL;
        OK(ifunc_handle_call(whose, NULL, 0, &call));
        while (ifunc_call_test(call) != IFUNC_STATUS_OK)
            OK(ifunc_target_poll(target, mine, NULL));
        pointer = ifunc_call_answer(call, NULL);
        CHECK(*pointer == mine);
        ifunc_call_destroy(call);
    }
    ifunc_handle_destroy(whose);

    /* The target goes away: what was sent may have run, and what was not has not. */
    OK(ifunc_handle_call(add, &one, sizeof one, &call));
    OK(ifunc_target_destroy(target));
    FAILS(IFUNC_STATUS_INDETERMINATE, "may or may not have run", ifunc_call_wait(call));
    ifunc_call_destroy(call);
    FAILS(IFUNC_STATUS_PEER_GONE, "`add` was not sent", ifunc_handle_send(add, &one, sizeof one));
    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);
}

/* ---- Exports: in the options, and while the target serves ---- */

static uint64_t twice(uint64_t what)
{
    return 2 * what;
}

static uint64_t thrice(uint64_t what)
{
    return 3 * what;
}

static int never_done(void *target_args, void *user)
{
    (void)target_args, (void)user;
    return 0;
}

static ifunc_target *its_target;

/* What an invocation may and may not do with the target that runs it. */
static uint64_t meddles(uint64_t what)
{
    struct state state = {0};
    ifunc_stats *stats;
    FAILS(IFUNC_STATUS_IN_USE, "being polled", ifunc_target_poll(its_target, &state, NULL));
    FAILS(IFUNC_STATUS_IN_USE, "being polled", ifunc_target_serve(its_target, &state));
    FAILS(IFUNC_STATUS_IN_USE, "being polled", ifunc_target_serve_until(its_target, &state, never_done, NULL));
    FAILS(IFUNC_STATUS_IN_USE, "being polled", ifunc_target_serve_shared(its_target, &state, 2));
    FAILS(IFUNC_STATUS_IN_USE, "being polled", ifunc_target_wait(its_target, 1));
    FAILS(IFUNC_STATUS_IN_USE, "being polled", ifunc_target_destroy(its_target));
    CHECK(!ifunc_target_arm(its_target) && ifunc_target_connections(its_target) == 0);
    CHECK(ifunc_target_fd(its_target) >= 0 && *ifunc_target_address(its_target));
    OK(ifunc_target_stats(its_target, &stats));
    ifunc_stats_destroy(stats);
    return what;
}

static uint64_t asked(ifunc_handle *ask, uint64_t what)
{
    uint64_t answer = 0;
    OK(ifunc_handle_call_wait(ask, &what, sizeof what, &answer, sizeof answer, NULL));
    return answer;
}

static void exports(void)
{
    static uint64_t factor = 10, other_factor = 100;
    struct serving serving;
    const char *address = address_of("loopback:exports");
    ifunc_target_options *options = accepting();
    ifunc_source *source;
    ifunc_handle *ask;
    uint64_t five = 5;

    OK(ifunc_target_options_export_function(options, "host_ask", NULL, (ifunc_function)twice));
    OK(ifunc_target_options_export_data(options, "host_factor", NULL, &factor));
    OK(ifunc_target_options_allow_remote_exports(options, false));
    start(&serving, address, options);
    ifunc_target_options_destroy(options);
    source = connected(address);
    ask = loaded(source, "ask");
    CHECK(asked(ask, 5) == 100);
    OK(ifunc_target_replace_function(serving.target, "host_ask", NULL, (ifunc_function)thrice));
    CHECK(asked(ask, 5) == 150);
    OK(ifunc_target_replace_data(serving.target, "host_factor", NULL, &other_factor));
    CHECK(asked(ask, 5) == 1500);
    its_target = serving.target;
    OK(ifunc_target_replace_function(serving.target, "host_ask", NULL, (ifunc_function)meddles));
    CHECK(asked(ask, 5) == 500);
    FAILS(IFUNC_STATUS_EXPORT, "exported already",
          ifunc_target_add_function(serving.target, "host_ask", NULL, (ifunc_function)twice));
    FAILS(IFUNC_STATUS_EXPORT, "exported already", ifunc_target_add_data(serving.target, "host_factor", NULL, &factor));
    FAILS(IFUNC_STATUS_EXPORT, "is not exported",
          ifunc_target_replace_function(serving.target, "nobody", NULL, (ifunc_function)twice));
    FAILS(IFUNC_STATUS_EXPORT, "is not exported", ifunc_target_replace_data(serving.target, "nobody", NULL, &factor));
    FAILS(IFUNC_STATUS_EXPORT, "is not exported", ifunc_target_remove_export(serving.target, "nobody"));
    IS_NULL(ifunc_target_remove_export(serving.target, NULL));
    OK(ifunc_target_remove_export(serving.target, "host_ask"));
    REJECTED(IFUNC_REJECTION_MISSING_IMPORT, "host_ask", ifunc_handle_call_wait(ask, &five, sizeof five, NULL, 0, NULL));
    OK(ifunc_target_add_function(serving.target, "host_ask", "fn host_ask(u64)->u64", (ifunc_function)twice));
    OK(ifunc_target_remove_export(serving.target, "host_factor"));
    OK(ifunc_target_add_data(serving.target, "host_factor", "static host_factor:u64", &factor));
    CHECK(asked(ask, 5) == 100);
    ifunc_handle_destroy(ask);
    ifunc_source_destroy(source);
    stop(&serving);
}

/* ---- Which code is accepted ---- */

struct allowed {
    const char *name;
    int asked;
};

static int is_allowed(const ifunc_source_info *source, const ifunc_image_info *image, void *user)
{
    struct allowed *allowed = user;
    allowed->asked++;
    CHECK(source->connection > 0 && source->pid == (int64_t)getpid() && image->id && image->len > 64 && !image->signer);
    return !strcmp(image->name, allowed->name);
}

/* The policy of a file. */
static void read_policy(ifunc_target_options *options, const char *text)
{
    char path[] = "/tmp/ifunc-capi-policy-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    CHECK(file && fputs(text, file) >= 0 && !fclose(file));
    OK(ifunc_target_options_read_policy(options, path));
    unlink(path);
}

static void policies(void)
{
    struct serving serving;
    struct allowed allowed = {"echo", 0};
    ifunc_target_options *options = ifunc_target_options_create();
    ifunc_source *source;
    ifunc_handle *echo, *whose;

    /* Without a policy, nothing is. */
    start(&serving, address_of("shm:ifunc-capi-none"), NULL);
    source = connected(ifunc_target_address(serving.target));
    echo = loaded(source, "echo");
    REJECTED(IFUNC_REJECTION_POLICY, "accepts no code", ifunc_handle_call_wait(echo, NULL, 0, NULL, 0, NULL));
    ifunc_handle_destroy(echo);
    ifunc_source_destroy(source);
    stop(&serving);

    /* What a file says: here, code of processes of this user, with any imports. */
    read_policy(options, "[unsigned.same-user]\n");
    {
        char path[] = "/tmp/ifunc-capi-policy-XXXXXX";
        FILE *file = fdopen(mkstemp(path), "w");
        CHECK(file && fputs("[unsigned.nobody]\n", file) >= 0 && !fclose(file));
        FAILS(IFUNC_STATUS_POLICY, "line 1", ifunc_target_options_read_policy(options, path));
        unlink(path);
    }
    OK(ifunc_target_options_accept_if(options, is_allowed, &allowed));
    /* Every other option, which the target must take. */
    OK(ifunc_target_options_connect_any_user(options));
    OK(ifunc_target_options_allow_remote_exports(options, true));
    OK(ifunc_target_options_set_max_image(options, 1 << 20));
    OK(ifunc_target_options_set_max_image_memory(options, 1 << 20));
    OK(ifunc_target_options_set_max_handles(options, 16));
    OK(ifunc_target_options_set_max_connections(options, 16));
    OK(ifunc_target_options_set_unfinished_bodies(options, 1 << 20, GENEROUS));
    OK(ifunc_target_options_set_code_per_connection(options, 1 << 20, 16));
    OK(ifunc_target_options_set_code_cache(options, 4 << 20, 64));
    OK(ifunc_target_options_set_stack(options, 1 << 20));
    OK(ifunc_target_options_set_outbox(options, 1 << 20));
    OK(ifunc_target_options_set_peer_timeout(options, GENEROUS));
    OK(ifunc_target_options_set_copy_payloads(options, true));
    OK(ifunc_target_options_set_share_stats(options, false));
    OK(ifunc_target_options_set_timing(options, IFUNC_TIMING_OFF));
    OK(ifunc_target_options_allow_library(options, "libno-such-library.so.9"));
    start(&serving, address_of("shm:ifunc-capi-some"), options);
    source = connected(ifunc_target_address(serving.target));
    echo = loaded(source, "echo");
    whose = loaded(source, "whose");
    OK(ifunc_handle_call_wait(echo, NULL, 0, NULL, 0, NULL));
    REJECTED(IFUNC_REJECTION_POLICY, "own check", ifunc_handle_call_wait(whose, NULL, 0, NULL, 0, NULL));
    CHECK(allowed.asked >= 2);
    {
        ifunc_stats *stats;
        FAILS(IFUNC_STATUS_REFUSED, "", ifunc_source_target_stats(source, GENEROUS, &stats));
        CHECK(!stats);
    }
    ifunc_handle_destroy(echo);
    ifunc_handle_destroy(whose);
    ifunc_source_destroy(source);
    stop(&serving);
    ifunc_target_options_destroy(options);
}

static void a_policy_that_changes(void)
{
    struct serving serving;
    ifunc_target_options *options = ifunc_target_options_create();
    ifunc_target_options *without_code = ifunc_target_options_create();
    ifunc_source *source;
    ifunc_handle *echo;
    char long_payload[64] = {0}, answer[8];
    int i;

    read_policy(options, "[unsigned.same-user]\n[quotas]\npayload-bytes = 32\n");
    /* It changes what it names, and keeps the rest of the file. */
    OK(ifunc_target_options_set_max_answer(options, 1 << 16));
    start(&serving, address_of("shm:ifunc-capi-replaced"), options);
    source = connected(ifunc_target_address(serving.target));
    echo = loaded(source, "echo");
    OK(ifunc_handle_call_wait(echo, "some", 4, answer, sizeof answer, NULL));
    FAILS(IFUNC_STATUS_TOO_LARGE, "32", ifunc_handle_call_wait(echo, long_payload, sizeof long_payload, NULL, 0, NULL));

    /* What holds for as long as it serves cannot change. */
    OK(ifunc_target_options_set_stack(without_code, 1 << 20));
    FAILS(IFUNC_STATUS_POLICY, "`stack-bytes` cannot change", ifunc_target_replace_policy(serving.target, without_code));
    OK(ifunc_handle_call_wait(echo, "some", 4, answer, sizeof answer, NULL));
    ifunc_target_options_destroy(without_code);

    /* The same policy without those whose code runs. */
    without_code = ifunc_target_options_create();
    read_policy(without_code, "[quotas]\npayload-bytes = 32\n");
    OK(ifunc_target_options_set_max_answer(without_code, 1 << 16));
    OK(ifunc_target_replace_policy(serving.target, without_code));
    /* The target applies it within its next eight polls. */
    for (i = 0; i < 8; i++)
        ifunc_handle_call_wait(echo, "some", 4, answer, sizeof answer, NULL);
    REJECTED(IFUNC_REJECTION_POLICY, "accepts no code", ifunc_handle_call_wait(echo, "some", 4, answer, sizeof answer, NULL));
    OK(ifunc_target_replace_policy(serving.target, options));
    ifunc_handle_destroy(echo);
    echo = loaded(source, "echo");
    OK(ifunc_handle_call_wait(echo, "some", 4, answer, sizeof answer, NULL));

    ifunc_handle_destroy(echo);
    ifunc_source_destroy(source);
    stop(&serving);
    ifunc_target_options_destroy(options);
    ifunc_target_options_destroy(without_code);
}

/* ---- Serving: until it is enough, and on several threads ---- */

static int is_enough(void *target_args, void *user)
{
    const struct state *state = target_args;
    return state->counter >= *(uint64_t *)user;
}

static void *serve_until_enough(void *arg)
{
    struct serving *serving = arg;
    uint64_t enough = 3;
    serving->ended = ifunc_target_serve_until(serving->target, &serving->state, is_enough, &enough);
    return NULL;
}

static void *serve_on_two_threads(void *arg)
{
    struct serving *serving = arg;
    serving->ended = ifunc_target_serve_shared(serving->target, &serving->state, 2);
    return NULL;
}

static void serving_otherwise(void)
{
    struct serving serving;
    ifunc_target_options *options = accepting();
    ifunc_source *source;
    ifunc_handle *handle;
    uint64_t one = 1;
    int i;

    memset(&serving, 0, sizeof serving);
    OK(ifunc_target_listen(address_of("loopback:until"), options, &serving.target));
    CHECK(!pthread_create(&serving.thread, NULL, serve_until_enough, &serving));
    source = connected(ifunc_target_address(serving.target));
    handle = loaded(source, "add");
    for (i = 0; i < 3; i++)
        OK(ifunc_handle_send(handle, &one, sizeof one));
    CHECK(!pthread_join(serving.thread, NULL) && serving.ended == IFUNC_STATUS_OK && serving.state.counter == 3);
    ifunc_handle_destroy(handle);
    ifunc_source_destroy(source);
    OK(ifunc_target_destroy(serving.target));

    memset(&serving, 0, sizeof serving);
    OK(ifunc_target_listen(address_of("loopback:shared"), options, &serving.target));
    ifunc_target_options_destroy(options);
    CHECK(!pthread_create(&serving.thread, NULL, serve_on_two_threads, &serving));
    source = connected(ifunc_target_address(serving.target));
    handle = loaded(source, "echo");
    OK(ifunc_handle_call_wait(handle, NULL, 0, NULL, 0, NULL));
    ifunc_handle_destroy(handle);
    handle = loaded(source, "add");
    REJECTED(IFUNC_REJECTION_NOT_SHAREABLE, "", ifunc_handle_call_wait(handle, &one, sizeof one, NULL, 0, NULL));
    ifunc_handle_destroy(handle);
    ifunc_source_destroy(source);
    stop(&serving);
}

/* ---- Counters, from here and from there ---- */

static void check_stats(const ifunc_stats *stats, const char *address)
{
    ifunc_target_totals totals;
    ifunc_source_counts source;
    ifunc_entry_counts entry;

    OK(ifunc_stats_totals(stats, &totals));
    CHECK(!strcmp(totals.address, address) && totals.pid == (uint32_t)getpid() && totals.uptime_ns > 0);
    CHECK(totals.connected == 1 && totals.images == 1 && totals.code_used > 0 && totals.counts.executed == 3);
    CHECK(totals.counts.failed == 1 && totals.counts.rejected == 0);
    CHECK(ifunc_stats_source_count(stats) == 1);
    OK(ifunc_stats_source(stats, 0, &source));
    CHECK(source.counts.executed == 3 && source.bound == 1);
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "`index` is 1, and there are 1", ifunc_stats_source(stats, 1, &source));
    IS_NULL(ifunc_stats_source(stats, 0, NULL));
    CHECK(ifunc_stats_entry_count(stats) == 1);
    OK(ifunc_stats_entry(stats, 0, &entry));
    CHECK(!strcmp(entry.name, "add") && entry.hits == 4 && entry.failed == 1 && entry.answer_bytes == 24 && entry.id);
    CHECK(entry.median_ns > 0 && entry.longest_ns >= entry.median_ns && entry.memory > 0 && entry.bound == 1);
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "there are 1", ifunc_stats_entry(stats, 9, &entry));
    IS_NULL(ifunc_stats_entry(stats, 0, NULL));
    IS_NULL(ifunc_stats_totals(stats, NULL));
}

static void counters(void)
{
    struct serving serving;
    const char *address = address_of("loopback:counters");
    ifunc_target_options *options = accepting();
    ifunc_source *source;
    ifunc_handle *add;
    ifunc_stats *stats;
    uint64_t one = 1, now;
    int i;

    OK(ifunc_target_options_set_timing(options, IFUNC_TIMING_ALL));
    start(&serving, address, options);
    ifunc_target_options_destroy(options);
    source = connected(address);
    add = loaded(source, "add");
    for (i = 0; i < 3; i++)
        OK(ifunc_handle_call_wait(add, &one, sizeof one, &now, sizeof now, NULL));
    FAILS(IFUNC_STATUS_FAILED, "", ifunc_handle_call_wait(add, &one, 1, NULL, 0, NULL));
    OK(ifunc_source_target_stats(source, GENEROUS, &stats));
    check_stats(stats, address);
    ifunc_stats_destroy(stats);
    OK(ifunc_target_stats(serving.target, &stats));
    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);
    stop(&serving);
    /* It needs no target any more. */
    check_stats(stats, address);
    ifunc_stats_destroy(stats);
}

/* ---- An event loop for a source ---- */

static void event_loop(void)
{
    struct serving serving;
    ifunc_target_options *options = accepting();
    ifunc_source *source;
    ifunc_handle *add;
    ifunc_driver *driver, *second;
    ifunc_call *call;
    uint64_t one = 1;

    start(&serving, address_of("shm:ifunc-capi-loop"), options);
    ifunc_target_options_destroy(options);
    source = connected(ifunc_target_address(serving.target));
    add = loaded(source, "add");
    OK(ifunc_driver_create(source, &driver));
    FAILS(IFUNC_STATUS_SYSTEM, "has a driver", ifunc_driver_create(source, &second));
    CHECK(!second && ifunc_driver_fd(driver) >= 0);
    OK(ifunc_handle_call(add, &one, sizeof one, &call));
    for (;;) {
        struct pollfd fd = {0, POLLIN, 0};
        uint64_t left;
        ifunc_driver_progress(driver);
        if (ifunc_call_test(call) == IFUNC_STATUS_OK)
            break;
        fd.fd = ifunc_driver_fd(driver);
        left = ifunc_driver_time_left(driver);
        if (ifunc_driver_arm(driver))
            CHECK(poll(&fd, 1, left < GENEROUS ? (int)(left / 1000000) + 1 : 60000) >= 0);
    }
    ifunc_call_destroy(call);
    ifunc_driver_destroy(driver);
    OK(ifunc_driver_create(source, &driver));
    ifunc_driver_destroy(driver);
    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);
    stop(&serving);
}

/* ---- Groups: streams, scopes, links that carry invocations both ways ---- */

struct node {
    struct serving serving;
    ifunc_group *group;
    uint32_t number;
};

static void *join_and_serve(void *arg)
{
    struct node *node = arg;
    OK(ifunc_target_join(node->serving.target, node->group));
    return serve(&node->serving);
}

struct sends {
    ifunc_handle *spreads, *foreign;
    uint64_t depth;
    int returns;
};

static int send_in_scope(ifunc_scope *scope, void *user)
{
    struct sends *sends = user;
    ifunc_call *call;
    OK(ifunc_scope_send(scope, sends->spreads, &sends->depth, sizeof sends->depth));
    OK(ifunc_scope_call(scope, sends->spreads, &sends->depth, sizeof sends->depth, &call));
    OK(ifunc_call_wait(call));
    ifunc_call_destroy(call);
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "another source", ifunc_scope_send(scope, sends->foreign, NULL, 0));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "another source", ifunc_scope_call(scope, sends->foreign, NULL, 0, &call));
    /* It does not decode. */
    OK(ifunc_scope_send(scope, sends->spreads, "x", 1));
    return sends->returns;
}

static void groups(void)
{
    struct node nodes[2];
    char addresses[2][128];
    ifunc_target_options *options = accepting();
    ifunc_source *source, *second, *link;
    ifunc_handle *counts, *add;
    ifunc_stream *stream;
    ifunc_finished finished;
    struct sends sends;
    uint64_t last = 200, expected = 1, one = 1, now = 0;
    const void *part;
    size_t len;
    int i, at;

    memset(nodes, 0, sizeof nodes);
    for (i = 0; i < 2; i++) {
        struct node *node = &nodes[i];
        char name[64];
        snprintf(name, sizeof name, "loopback:node-%d", i);
        OK(ifunc_target_listen(address_of(name), options, &node->serving.target));
        snprintf(addresses[i], sizeof addresses[i], "%s", ifunc_target_address(node->serving.target));
    }
    ifunc_target_options_destroy(options);
    for (i = 0; i < 2; i++) {
        struct node *node = &nodes[i];
        node->number = (uint32_t)i;
        OK(ifunc_group_create(node->number, &node->group));
        OK(ifunc_group_set_timeout(node->group, GENEROUS));
        for (at = 0; at < 2; at++)
            OK(ifunc_group_add_node(node->group, (uint32_t)at, addresses[at]));
        CHECK(!pthread_create(&node->serving.thread, NULL, join_and_serve, node));
    }

    source = connected(addresses[0]);
    second = connected(addresses[0]);
    counts = loaded(source, "counts");
    for (;;) {
        OK(ifunc_handle_stream(counts, &last, sizeof last, &stream));
        if (ifunc_stream_next(stream, &part, &len) == IFUNC_STATUS_OK)
            break;
        ifunc_stream_destroy(stream);
    }
    do {
        CHECK(len == sizeof expected && !memcmp(part, &expected, sizeof expected));
        expected++;
    } while (ifunc_stream_next(stream, &part, &len) == IFUNC_STATUS_OK);
    /* No more than the window of the stream: the ifunc does not wait. */
    CHECK(!part && len == 0 && expected > 32);
    FAILS(IFUNC_STATUS_END, "", ifunc_stream_next(stream, &part, &len));
    ifunc_stream_destroy(stream);
    OK(ifunc_handle_stream(counts, &last, 1, &stream));
    FAILS(IFUNC_STATUS_FAILED, "does not decode", ifunc_stream_next(stream, &part, &len));
    FAILS(IFUNC_STATUS_END, "", ifunc_stream_next(stream, &part, &len));
    ifunc_stream_destroy(stream);
    ifunc_handle_destroy(counts);

    memset(&sends, 0, sizeof sends);
    sends.spreads = loaded(source, "spreads");
    sends.foreign = loaded(second, "spreads");
    sends.depth = 5;
    OK(ifunc_source_finish(source, send_in_scope, &sends, &finished));
    CHECK(finished.executed == 2 * 63 && finished.failed == 1);
    CHECK(strstr(ifunc_rt_last_error(), "does not decode"));
    sends.returns = 17;
    FAILS(IFUNC_STATUS_CANCELLED, "`send` returned 17", ifunc_source_finish(source, send_in_scope, &sends, NULL));

    /* The link of node 0 to node 1. */
    FAILS(IFUNC_STATUS_PEER_GONE, "no link to node 9", ifunc_target_node_source(nodes[0].serving.target, 9, &link));
    FAILS(IFUNC_STATUS_GROUP, "is this node", ifunc_target_add_node(nodes[0].serving.target, 0, addresses[0]));
    OK(ifunc_target_add_node(nodes[0].serving.target, 9, "loopback:nobody"));
    OK(ifunc_target_node_source(nodes[0].serving.target, 1, &link));
    add = loaded(link, "add");
    OK(ifunc_handle_call_wait(add, &one, sizeof one, &now, sizeof now, NULL));
    CHECK(now == 1);
    ifunc_handle_destroy(add);
    ifunc_source_destroy(link);

    ifunc_handle_destroy(sends.spreads);
    ifunc_handle_destroy(sends.foreign);
    ifunc_source_destroy(source);
    ifunc_source_destroy(second);
    for (i = 0; i < 2; i++) {
        stop(&nodes[i].serving);
        ifunc_group_destroy(nodes[i].group);
    }
    CHECK(nodes[1].serving.state.counter == 1);
}

static void both_ways(void)
{
    struct serving serving;
    ifunc_target_options *options = accepting();
    ifunc_target *mine;
    ifunc_group *group;
    ifunc_source *source;
    ifunc_handle *add;
    ifunc_call *call;
    uint64_t one = 1;

    start(&serving, address_of("loopback:other"), options);
    OK(ifunc_target_listen(address_of("loopback:mine"), options, &mine));
    ifunc_target_options_destroy(options);
    FAILS(IFUNC_STATUS_INVALID_ADDRESS, "nowhere", ifunc_target_connect(mine, "nowhere", NULL, &source));
    OK(ifunc_target_connect(mine, ifunc_target_address(serving.target), NULL, &source));
    add = loaded(source, "add");
    OK(ifunc_target_poll(mine, NULL, NULL));
    /* This thread polls the link. */
    OK(ifunc_handle_call(add, &one, sizeof one, &call));
    while (ifunc_call_test(call) == IFUNC_STATUS_IN_PROGRESS)
        OK(ifunc_target_poll(mine, NULL, NULL));
    OK(ifunc_call_test(call));
    ifunc_call_destroy(call);
    FAILS(IFUNC_STATUS_WOULD_DEADLOCK, "would wait for this thread", ifunc_source_flush(source));
    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);

    /* A group that no other node joins: on demand it does not wait; and a target joins once. */
    OK(ifunc_group_create(0, &group));
    OK(ifunc_group_set_on_demand(group));
    OK(ifunc_group_add_node(group, 1, ifunc_target_address(serving.target)));
    OK(ifunc_target_join(mine, group));
    FAILS(IFUNC_STATUS_GROUP, "already", ifunc_target_join(mine, group));
    ifunc_group_destroy(group);
    OK(ifunc_target_destroy(mine));
    stop(&serving);
}

/* With an argument no ifunc writes to where it must not: for checkers of memory. */
/* ---- Ifuncs in processes of their own ---- */

static void runners(void)
{
    struct serving serving;
    const char *address = address_of("loopback:runners");
    ifunc_target_options *options = accepting();
    ifunc_source *source;
    ifunc_target *target;
    ifunc_handle *add, *whose, *crashes;
    uint64_t sum, five = 5;
    int i;

    OK(ifunc_target_options_set_level(options, IFUNC_LEVEL_PROCESS));
    OK(ifunc_target_options_set_target_type(options, "u64"));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "is empty", ifunc_target_options_set_runner_program(options, ""));
    OK(ifunc_target_options_set_runner_program(options, "/nowhere/runner"));
    FAILS(IFUNC_STATUS_SYSTEM, "there is no runner program `/nowhere/runner`", ifunc_target_listen(address, options, &target));
    OK(ifunc_target_options_set_runner_program(options, "/proc/self/exe"));
    OK(ifunc_target_options_set_runner_memory(options, 64 << 20));
    OK(ifunc_target_options_set_runner_cpu_time(options, IFUNC_SECONDS(60)));
    OK(ifunc_target_options_set_without_landlock(options, true));
    OK(ifunc_target_options_set_max_runners(options, 0));
    OK(ifunc_target_options_set_max_run_time(options, IFUNC_SECONDS(10)));
    start(&serving, address, options);
    OK(ifunc_source_connect(address, NULL, &source));
    add = loaded(source, "add");
    REJECTED(IFUNC_REJECTION_QUOTA, "max_runners", ifunc_handle_call_wait(add, &five, sizeof five, &sum, sizeof sum, NULL));
    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);
    stop(&serving);

    OK(ifunc_target_options_set_max_runners(options, 2));
    start(&serving, address, options);
    ifunc_target_options_destroy(options);
    OK(ifunc_source_connect(address, NULL, &source));
    add = loaded(source, "add");
    for (i = 1; i <= 10; i++) {
        OK(ifunc_handle_call_wait(add, &five, sizeof five, &sum, sizeof sum, NULL));
        CHECK(sum == 5 * (uint64_t)i);
    }
    /* They have a copy of the target's data, at an address of their own. */
    whose = loaded(source, "whose");
    OK(ifunc_handle_call_wait(whose, NULL, 0, &sum, sizeof sum, NULL));
    CHECK(sum && sum != (uintptr_t)&serving.state);
    crashes = loaded(source, "crashes");
    FAILS(IFUNC_STATUS_FAILED, "SIG", ifunc_handle_call_wait(crashes, NULL, 0, NULL, 0, NULL));
    CHECK(ifunc_rt_last_reason() == IFUNC_FAILURE_FAULT);
    OK(ifunc_handle_call_wait(add, &five, sizeof five, &sum, sizeof sum, NULL));
    CHECK(sum == 55);
    ifunc_handle_destroy(crashes);
    ifunc_handle_destroy(whose);
    ifunc_handle_destroy(add);
    ifunc_source_destroy(source);
    stop(&serving);
    CHECK(serving.state.counter == 55);
}

/* ---- Over TLS ---- */

/* The certificate of an authority, and one that it issued for `store.example` and the key below: until 2120. */
static const char authority_pem[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBPTCB8KADAgECAhRTdpxBatHS9hmb7sBp+I1nylv2BTAFBgMrZXAwDTELMAkG\n"
    "A1UEAwwCY2EwIBcNMjYxMTIzMjE1NTU3WhgPMjEyNjEwMzAyMTU1NTdaMA0xCzAJ\n"
    "BgNVBAMMAmNhMCowBQYDK2VwAyEAgTl3Dqh9F19Wo1Rmw0x+zMuNipG07jeiXfYP\n"
    "W4/Js5SjYDBeMB0GA1UdDgQWBBRpaE5R2lXxblNcqtzAxcWsF3PDpzAfBgNVHSME\n"
    "GDAWgBRpaE5R2lXxblNcqtzAxcWsF3PDpzAPBgNVHRMBAf8EBTADAQH/MAsGA1Ud\n"
    "DwQEAwICBDAFBgMrZXADQQA2EYDi3DE390tLfbZitRi7xArttBDkbWVSdDawx+sI\n"
    "q/DrEbtIbBF3CSg/Ys8mc6AOjJ5gvXLM63xJ/6ot09gI\n"
    "-----END CERTIFICATE-----\n";
static const char store_pem[] =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBNDCB56ADAgECAgEHMAUGAytlcDANMQswCQYDVQQDDAJjYTAgFw0yMDAxMDEw\n"
    "MDAwMDBaGA8yMTIwMDEwMTAwMDAwMFowEDEOMAwGA1UEAwwFc3RvcmUwKjAFBgMr\n"
    "ZXADIQCKiOPddAnxlf1S2y08ul1yymcJvx2UEhvzdIgBtA9vXKNnMGUwGAYDVR0R\n"
    "BBEwD4INc3RvcmUuZXhhbXBsZTAJBgNVHRMEAjAAMB0GA1UdDgQWBBSa0Z4PFu73\n"
    "FMuQxvGV285m6UWA+TAfBgNVHSMEGDAWgBRpaE5R2lXxblNcqtzAxcWsF3PDpzAF\n"
    "BgMrZXADQQD/dQI0O64mVxurSybyxcJLYPchIBAFjLeOWXzHdEYVLVYJ8Fz+ZTbq\n"
    "qI5dW7/zbUgMXLYR2JbRyUlHldKqxMkO\n"
    "-----END CERTIFICATE-----\n";
/* The key of the seed 0101…, as `cargo ifunc keygen` writes it. */
#define STORE_SEED "0101010101010101010101010101010101010101010101010101010101010101"
#define STORE_KEY "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"

/* A file of this name with this text. */
static const char *file_of(const char *name, const char *text)
{
    static char paths[5][256];
    static int next;
    char *path = paths[next++ % 5];
    int file;

    snprintf(path, sizeof paths[0], "/tmp/ifunc-capi-%ld-%s", (long)getpid(), name);
    unlink(path);
    file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text) && !close(file));
    return path;
}

static void over_tls(void)
{
    const char *secret = file_of("store.key", "ifunc-secret-key ed25519 " STORE_SEED " store\n");
    const char *public = file_of("store.pub", "ifunc-public-key ed25519 " STORE_KEY " store\n");
    const char *certificate = file_of("store.pem", store_pem), *authority = file_of("authority.pem", authority_pem);
    ifunc_target_options *target_options = ifunc_target_options_create();
    ifunc_source_options *source_options = ifunc_source_options_create();
    ifunc_tls_keys *keys, *trusting;
    ifunc_target *target;
    ifunc_source *source;
    char *address;

    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "/nonesuch", ifunc_tls_keys_read("/nonesuch", &keys));
    CHECK(!keys);
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "ifunc-secret-key", ifunc_tls_keys_read(public, &keys));
    OK(ifunc_tls_keys_read(secret, &keys));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "ifunc-public-key", ifunc_tls_keys_add_peer(keys, secret));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "holds no certificate", ifunc_tls_keys_set_certificate(keys, secret));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "is of the key", ifunc_tls_keys_set_certificate(keys, authority));
    FAILS(IFUNC_STATUS_INVALID_ARGUMENT, "no certificate", ifunc_tls_keys_set_authority(keys, secret, NULL));
    OK(ifunc_tls_keys_add_peer(keys, public));
    OK(ifunc_tls_keys_set_certificate(keys, certificate));
    OK(ifunc_target_options_set_tls(target_options, keys));
    OK(ifunc_target_listen("tls://127.0.0.1:0", target_options, &target));
    address = strdup(ifunc_target_address(target));

    /* By keys, which both sides know; and by the name of the target's certificate, which is not that of its host. */
    OK(ifunc_source_options_set_tls(source_options, keys));
    OK(ifunc_source_options_set_connect_timeout(source_options, GENEROUS));
    OK(ifunc_source_connect(address, source_options, &source));
    ifunc_source_destroy(source);
    OK(ifunc_tls_keys_read(secret, &trusting));
    OK(ifunc_tls_keys_set_authority(trusting, authority, "store.example"));
    OK(ifunc_source_options_set_tls(source_options, trusting));
    OK(ifunc_source_connect(address, source_options, &source));
    ifunc_source_destroy(source);
    OK(ifunc_tls_keys_set_authority(trusting, authority, NULL));
    OK(ifunc_source_options_set_tls(source_options, trusting));
    FAILS(IFUNC_STATUS_REFUSED, "`store.example`", ifunc_source_connect(address, source_options, &source));

    ifunc_target_destroy(target);
    ifunc_target_options_destroy(target_options);
    ifunc_source_options_destroy(source_options);
    ifunc_tls_keys_destroy(keys);
    ifunc_tls_keys_destroy(trusting);
    free(address);
    unlink(secret), unlink(public), unlink(certificate), unlink(authority);
}

int main(int argc, char **argv)
{
    (void)argv;
    ifunc_run_if_started_by_target();
    setvbuf(stdout, NULL, _IONBF, 0);
    about();
    invalid_values();
    sends_and_calls(address_of("loopback:calls"));
    sends_and_calls(address_of("shm:ifunc-capi"));
    failures(argc < 2);
    /* A tool that watches this program would not work in a process without files. */
#ifndef __SANITIZE_ADDRESS__
    if (argc < 2)
        runners();
#else
    (void)runners;
#endif
    one_thread();
    exports();
    policies();
    a_policy_that_changes();
    serving_otherwise();
    counters();
    event_loop();
    groups();
    both_ways();
    over_tls();
    print_met();
    puts("everything passed");
    return 0;
}
