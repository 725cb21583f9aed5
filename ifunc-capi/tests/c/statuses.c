/* The statuses that take another process, another version, or a system that is out of order. Without an argument: those that any system can
 * show. `no-ucx`: where no UCX can be opened. `no-randomness`: where the kernel gives no random numbers. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

/* ---- A process that listens where a target does, and speaks another version, or nonsense ---- */

enum impostor_says { ANOTHER_VERSION, NONSENSE, NOTHING };

struct impostor {
    int listening;
    enum impostor_says says;
    pthread_t thread;
};

/* Answers each connection. A hello begins with 5 bytes of magic and 3 of the transport; then comes the version, a little-endian number. */
static void *pretend(void *arg)
{
    struct impostor *impostor = arg;
    int socket;

    while ((socket = accept(impostor->listening, NULL, NULL)) >= 0) {
        unsigned char message[1024];
        ssize_t len = recv(socket, message, sizeof message, 0);
        CHECK(len > 16);
        if (impostor->says == ANOTHER_VERSION)
            message[8]++;
        if (impostor->says == NONSENSE)
            memset(message, 'x', sizeof message);
        /* The source may have given up. */
        if (impostor->says == NOTHING)
            CHECK(recv(socket, message, sizeof message, 0) == 0);
        else
            (void)!send(socket, message, (size_t)len, MSG_NOSIGNAL);
        close(socket);
    }
    return NULL;
}

static struct sockaddr_un socket_of(const char *folder, const char *name)
{
    struct sockaddr_un at;
    memset(&at, 0, sizeof at);
    at.sun_family = AF_UNIX;
    CHECK(snprintf(at.sun_path, sizeof at.sun_path, "%s/%s.sock", folder, name) < (int)sizeof at.sun_path);
    return at;
}

static void meets_impostor(const char *folder, enum impostor_says says, uint64_t timeout, ifunc_status status,
                           const char *text)
{
    struct sockaddr_un at = socket_of(folder, "impostor");
    struct impostor impostor;
    ifunc_source_options *options = ifunc_source_options_create();
    ifunc_source *source;

    impostor.says = says;
    impostor.listening = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    CHECK(impostor.listening >= 0);
    unlink(at.sun_path);
    CHECK(!bind(impostor.listening, (struct sockaddr *)&at, sizeof at) && !listen(impostor.listening, 1));
    CHECK(!pthread_create(&impostor.thread, NULL, pretend, &impostor));
    OK(ifunc_source_options_set_connect_timeout(options, timeout));
    FAILS(status, text, ifunc_source_connect("shm:impostor", options, &source));
    CHECK(!source && strstr(ifunc_rt_last_error(), "shm:impostor"));
    ifunc_source_options_destroy(options);
    shutdown(impostor.listening, SHUT_RDWR);
    CHECK(!pthread_join(impostor.thread, NULL));
    close(impostor.listening);
    unlink(at.sun_path);
}

static void impostors(void)
{
    char folder[] = "/tmp/ifunc-capi-XXXXXX";

    CHECK(mkdtemp(folder));
    setenv("IFUNC_RUNTIME_DIR", folder, 1);
    meets_impostor(folder, ANOTHER_VERSION, GENEROUS, IFUNC_STATUS_VERSION, "version");
    /* The source tries again until its timeout: what answers may be starting. */
    meets_impostor(folder, NONSENSE, IFUNC_SECONDS(3), IFUNC_STATUS_PROTOCOL, "does not say what it is");
    meets_impostor(folder, NOTHING, IFUNC_MILLISECONDS(20), IFUNC_STATUS_UNREACHABLE, "did not answer");
    {
        /* A target is not disturbed by a process that speaks nonsense to it. */
        struct serving serving;
        ifunc_target_options *options = accepting();
        struct sockaddr_un at = socket_of(folder, "honest");
        int stranger = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        ifunc_source *source;
        ifunc_handle *echo;

        start(&serving, "shm:honest", options);
        ifunc_target_options_destroy(options);
        CHECK(!connect(stranger, (struct sockaddr *)&at, sizeof at));
        CHECK(send(stranger, "what is this?", 13, MSG_NOSIGNAL) == 13);
        source = connected("shm:honest");
        echo = loaded(source, "echo");
        OK(ifunc_handle_call_wait(echo, NULL, 0, NULL, 0, NULL));
        close(stranger);
        ifunc_handle_destroy(echo);
        ifunc_source_destroy(source);
        stop(&serving);
    }
    unsetenv("IFUNC_RUNTIME_DIR");
    CHECK(!rmdir(folder));
}

/* ---- A node that dies with invocations of a scope ---- */

struct node {
    ifunc_target *target;
    ifunc_group *group;
    struct state state;
    pthread_t thread;
    ifunc_status ended;
    bool serves;
};

static void *join_group(void *arg)
{
    struct node *node = arg;
    node->ended = ifunc_target_join(node->target, node->group);
    if (node->ended == IFUNC_STATUS_OK && node->serves)
        node->ended = ifunc_target_serve(node->target, &node->state);
    return NULL;
}

struct doomed {
    ifunc_handle *visits;
    struct node *node;
};

/* Starts invocations on the node that never end by themselves, and ends the node once it runs them. */
static int send_and_kill(ifunc_scope *scope, void *user)
{
    struct doomed *doomed = user;
    uint64_t what[2] = {1, 60};

    OK(ifunc_scope_send(scope, doomed->visits, what, sizeof what));
    CHECK(!pthread_join(doomed->node->thread, NULL) && doomed->node->ended == IFUNC_STATUS_OK);
    while (doomed->node->state.counter < 3)
        OK(ifunc_target_poll(doomed->node->target, &doomed->node->state, NULL));
    OK(ifunc_target_destroy(doomed->node->target));
    return 0;
}

static void incomplete(void)
{
    struct node nodes[2];
    char addresses[2][128];
    ifunc_target_options *options = accepting();
    ifunc_source *source;
    struct doomed doomed;
    ifunc_finished finished;
    int i, at;

    memset(nodes, 0, sizeof nodes);
    for (i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "loopback:scope-%d", i);
        OK(ifunc_target_listen(address_of(name), options, &nodes[i].target));
        snprintf(addresses[i], sizeof addresses[i], "%s", ifunc_target_address(nodes[i].target));
    }
    ifunc_target_options_destroy(options);
    for (i = 0; i < 2; i++) {
        OK(ifunc_group_create((uint32_t)i, &nodes[i].group));
        OK(ifunc_group_set_timeout(nodes[i].group, GENEROUS));
        for (at = 0; at < 2; at++)
            OK(ifunc_group_add_node(nodes[i].group, (uint32_t)at, addresses[at]));
        nodes[i].serves = i == 0;
        CHECK(!pthread_create(&nodes[i].thread, NULL, join_group, &nodes[i]));
    }
    source = connected(addresses[0]);
    doomed.visits = loaded(source, "visits");
    doomed.node = &nodes[1];
    FAILS(IFUNC_STATUS_INCOMPLETE, "node 1", ifunc_source_finish(source, send_and_kill, &doomed, &finished));
    ifunc_handle_destroy(doomed.visits);
    ifunc_source_destroy(source);
    ifunc_target_stop(nodes[0].target);
    CHECK(!pthread_join(nodes[0].thread, NULL) && nodes[0].ended == IFUNC_STATUS_OK);
    OK(ifunc_target_destroy(nodes[0].target));
    for (i = 0; i < 2; i++)
        ifunc_group_destroy(nodes[i].group);
}

/* ---- No UCX ---- */

static void no_ucx(void)
{
    ifunc_source *source;
    ifunc_target *target;
    ifunc_worker *worker;
    int data = 0;

    FAILS(IFUNC_STATUS_UCX, "libucp.so.0", ifunc_source_connect("ucx://127.0.0.1:1", NULL, &source));
    FAILS(IFUNC_STATUS_UCX, "libucp.so.0", ifunc_target_listen("ucx://127.0.0.1:0", NULL, &target));
    FAILS(IFUNC_STATUS_UCX, "libucp.so.0",
          ifunc_worker_attach((struct ucp_context *)&data, (struct ucp_worker *)&data, 1, 0, &worker));
    CHECK(!source && !target && !worker);
    /* The rest works as ever. */
    OK(ifunc_target_listen(address_of("loopback:no-ucx"), NULL, &target));
    OK(ifunc_target_destroy(target));
}

/* ---- No random numbers: the standard library of Rust panics ---- */

/* These take the place of the C library's for `libifunc_rt`, too. */
static bool no_randomness;

ssize_t getrandom(void *bytes, size_t len, unsigned flags)
{
    if (no_randomness) {
        errno = EPERM;
        return -1;
    }
    return syscall(SYS_getrandom, bytes, len, flags);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    int mode;

    va_start(arguments, flags);
    mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    if (no_randomness && !strcmp(path, "/dev/urandom")) {
        errno = EACCES;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* A thread that has no random numbers yet. */
static void *listens(void *arg)
{
    ifunc_target *target;
    FAILS(IFUNC_STATUS_INTERNAL, "the runtime panicked: ",
          ifunc_target_listen(address_of("loopback:no-randomness"), NULL, &target));
    CHECK(!target);
    return arg;
}

static void panics(void)
{
    pthread_t thread;
    ifunc_target *target;

    no_randomness = true;
    CHECK(!pthread_create(&thread, NULL, listens, NULL) && !pthread_join(thread, NULL));
    no_randomness = false;
    /* The library goes on. */
    OK(ifunc_target_listen(address_of("loopback:randomness"), NULL, &target));
    OK(ifunc_target_destroy(target));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 2) {
        impostors();
        incomplete();
    } else if (!strcmp(argv[1], "no-ucx")) {
        no_ucx();
    } else if (!strcmp(argv[1], "no-randomness")) {
        panics();
    } else {
        return 2;
    }
    print_met();
    puts("statuses passed");
    return 0;
}
