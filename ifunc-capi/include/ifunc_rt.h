/* ifunc_rt.h: the runtime of injected functions, for C and C++.
 *
 * A source sends a payload and, once per connection, the machine code of a function; a target installs the code and runs it on its own
 * data. Build ifuncs with `cargo ifunc build`; build programs with `pkg-config --cflags --libs ifunc_rt`.
 *
 *     // In one process:
 *     ifunc_target_options *options = ifunc_target_options_create();
 *     ifunc_target_options_accept_code(options);
 *     ifunc_target *target;
 *     if (ifunc_target_listen("shm:counter", options, &target) != IFUNC_STATUS_OK)
 *         errx(1, "%s", ifunc_rt_last_error());
 *     uint64_t counter = 0;
 *     ifunc_target_serve(target, &counter);
 *
 *     // In another:
 *     ifunc_source *source;
 *     ifunc_handle *add;
 *     uint64_t delta = 5, now;
 *     if (ifunc_source_connect("shm:counter", NULL, &source) != IFUNC_STATUS_OK ||
 *         ifunc_source_load(source, "add", &add) != IFUNC_STATUS_OK ||
 *         ifunc_handle_call_wait(add, &delta, sizeof delta, &now, sizeof now, NULL) != IFUNC_STATUS_OK)
 *         errx(1, "%s", ifunc_rt_last_error());
 *     ifunc_handle_destroy(add);
 *     ifunc_source_destroy(source);
 *
 * Errors. Most functions return an `ifunc_status`: 0 is success, positive values are no errors, negative values are errors.
 * `ifunc_rt_last_error` is the text of the calling thread's last error. Functions that return something else set it, too.
 *
 * Null. Each function says which arguments may be null. Any other null pointer is IFUNC_STATUS_NULL_ARGUMENT; nothing was done. An out
 * pointer of an object is set to null first.
 *
 * Memory. What a function makes has a `_destroy` of its own. Strings and bytes that are passed are copied, or used during the call only.
 * Objects may be destroyed in any order. The callers' promise, which the runtime cannot check: a pointer that is not null points to what the
 * argument says, and an object is not used after it was destroyed.
 *
 * Threads. Sources, handles, workers and snapshots may be used by any number of threads at once, and messages that no thread changes. All
 * other objects belong to one thread at a time, except where a function says that any thread may call it. A process that forks does it before
 * it makes a source or a target.
 *
 * Callbacks are called on the thread that serves, unless they say otherwise. They must not throw C++ exceptions or `longjmp` out.
 *
 * Times are nanoseconds. */

#ifndef IFUNC_RT_H
#define IFUNC_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* UCX's. `ucp_context_h`, `ucp_worker_h` and `ucp_ep_h` are pointers to them. */
struct ucp_context;
struct ucp_worker;
struct ucp_ep;

/* A time without a limit. */
#define IFUNC_NO_LIMIT UINT64_MAX
#define IFUNC_MICROSECONDS(n) ((uint64_t)(n) * UINT64_C(1000))
#define IFUNC_MILLISECONDS(n) ((uint64_t)(n) * UINT64_C(1000000))
#define IFUNC_SECONDS(n) ((uint64_t)(n) * UINT64_C(1000000000))


/**
 * Flag of `ifunc_worker_attach`: the context has UCP_FEATURE_WAKEUP, so that waits can sleep until UCX wakes them. Without it they poll
 * after 16 microseconds, then at intervals that double up to 1 millisecond.
 */
#define IFUNC_WORKER_WAKEUP 1

/**
 * Flag of `ifunc_worker_attach`: only the application calls `ucp_worker_progress`. Blocking calls then need another thread that makes
 * progress.
 */
#define IFUNC_WORKER_NO_PROGRESS 2

/**
 * How a function ended. 0 is success; positive values are no errors; negative values are errors, and `ifunc_rt_last_error` has
 * the text of the calling thread's last one.
 */
typedef enum {
    /**
     * Success.
     */
    IFUNC_STATUS_OK = 0,
    /**
     * Not yet: ask again.
     */
    IFUNC_STATUS_IN_PROGRESS = 1,
    /**
     * A stream has ended.
     */
    IFUNC_STATUS_END = 2,
    /**
     * An argument is null that may not be.
     */
    IFUNC_STATUS_NULL_ARGUMENT = -1,
    /**
     * An argument has a value that it cannot have: a string that is not UTF-8, an unknown number, a name that names nothing.
     */
    IFUNC_STATUS_INVALID_ARGUMENT = -2,
    /**
     * An address does not parse.
     */
    IFUNC_STATUS_INVALID_ADDRESS = -3,
    /**
     * The target is being polled or serves, maybe by the caller itself: an invocation called the function. Or a worker
     * is closed while a poll reads from its buffers. Nothing was done.
     */
    IFUNC_STATUS_IN_USE = -4,
    /**
     * The object belongs to another thread.
     */
    IFUNC_STATUS_WRONG_THREAD = -5,
    /**
     * The runtime panicked, which is a fault of it.
     */
    IFUNC_STATUS_INTERNAL = -6,
    /**
     * The kernel refused something.
     */
    IFUNC_STATUS_SYSTEM = -7,
    /**
     * No target listens at the address, or it does not answer.
     */
    IFUNC_STATUS_UNREACHABLE = -8,
    /**
     * The other side refuses: the connection, its counters.
     */
    IFUNC_STATUS_REFUSED = -9,
    /**
     * The other side has another version.
     */
    IFUNC_STATUS_VERSION = -10,
    /**
     * What the other side sends does not follow the protocol.
     */
    IFUNC_STATUS_PROTOCOL = -11,
    /**
     * Another target listens at the address.
     */
    IFUNC_STATUS_ADDRESS_IN_USE = -12,
    /**
     * There is no UCX, or it refused something.
     */
    IFUNC_STATUS_UCX = -13,
    /**
     * A size that cannot be, or that this side does not take.
     */
    IFUNC_STATUS_LIMIT = -14,
    /**
     * No folder has the library of the ifunc.
     */
    IFUNC_STATUS_NO_LIBRARY = -15,
    /**
     * The file or the bytes are no library or image of an ifunc, or hold several and no name was given.
     */
    IFUNC_STATUS_BAD_LIBRARY = -16,
    /**
     * The library cannot be opened.
     */
    IFUNC_STATUS_LIBRARY_OPEN = -17,
    /**
     * The deadline passed. A call may still run.
     */
    IFUNC_STATUS_TIMEOUT = -18,
    /**
     * It would have waited for credit. Nothing was sent.
     */
    IFUNC_STATUS_WOULD_BLOCK = -19,
    /**
     * The thread would wait for itself: it serves the connection.
     */
    IFUNC_STATUS_WOULD_DEADLOCK = -20,
    /**
     * The ifunc panicked on the target, which goes on.
     */
    IFUNC_STATUS_PANIC = -21,
    /**
     * The ifunc started and failed; `ifunc_rt_last_reason` is an `ifunc_failure`.
     */
    IFUNC_STATUS_FAILED = -22,
    /**
     * The target did not start it; `ifunc_rt_last_reason` is an `ifunc_rejection`.
     */
    IFUNC_STATUS_REJECTED = -23,
    /**
     * The target is gone. It was not sent.
     */
    IFUNC_STATUS_PEER_GONE = -24,
    /**
     * It was sent, then the connection was lost: it may or may not have run.
     */
    IFUNC_STATUS_INDETERMINATE = -25,
    /**
     * Nodes died while invocations of a scope may have been on them.
     */
    IFUNC_STATUS_INCOMPLETE = -26,
    /**
     * `payload_init` failed, and nothing was sent; `ifunc_rt_last_reason` is what it returned.
     */
    IFUNC_STATUS_PAYLOAD = -27,
    /**
     * A payload, an image or the answers exceed a limit.
     */
    IFUNC_STATUS_TOO_LARGE = -28,
    /**
     * An earlier send failed; `ifunc_rt_last_error` says how. This one was not sent.
     */
    IFUNC_STATUS_EARLIER = -30,
    /**
     * The answer is longer than the caller's memory, which has its beginning.
     */
    IFUNC_STATUS_TRUNCATED = -31,
    /**
     * The message is for another ifunc than the handle.
     */
    IFUNC_STATUS_OTHER_IFUNC = -32,
    /**
     * Exports that conflict, or cannot be changed.
     */
    IFUNC_STATUS_EXPORT = -33,
    /**
     * The nodes of a group do not find each other, or a number that no node can have.
     */
    IFUNC_STATUS_GROUP = -34,
    /**
     * An environment variable has a value that it cannot have.
     */
    IFUNC_STATUS_ENVIRONMENT = -35,
    /**
     * The worker is closed, or sends shorter headers of active messages than the runtime needs.
     */
    IFUNC_STATUS_WORKER = -36,
    /**
     * A function that the caller passed returned another value than 0.
     */
    IFUNC_STATUS_CANCELLED = -37,
    /**
     * A policy cannot be used: its file, or at this address.
     */
    IFUNC_STATUS_POLICY = -38,
} ifunc_status;

/**
 * Why an invocation that started failed.
 */
typedef enum {
    /**
     * The payload does not decode.
     */
    IFUNC_FAILURE_PAYLOAD = 1,
    /**
     * The ifunc panicked.
     */
    IFUNC_FAILURE_PANIC = 2,
    /**
     * The ifunc raised a fault.
     */
    IFUNC_FAILURE_FAULT = 3,
    /**
     * The ifunc ran over its execution deadline.
     */
    IFUNC_FAILURE_DEADLINE = 4,
    /**
     * Too little stack is left for a host function.
     */
    IFUNC_FAILURE_STACK_LOW = 5,
    /**
     * A host function panicked.
     */
    IFUNC_FAILURE_HOST_PANIC = 6,
    /**
     * The answer does not fit.
     */
    IFUNC_FAILURE_ANSWER = 7,
    /**
     * The ifunc returned an unknown code.
     */
    IFUNC_FAILURE_UNKNOWN_RESULT = 8,
    /**
     * The node to which it was forwarded was lost.
     */
    IFUNC_FAILURE_NODE_LOST = 9,
    /**
     * No answer came before the deadline.
     */
    IFUNC_FAILURE_INDETERMINATE = 10,
    /**
     * The ifunc forwarded the invocation and answered it, too.
     */
    IFUNC_FAILURE_ENDED_TWICE = 11,
    /**
     * The source dropped the call.
     */
    IFUNC_FAILURE_CANCELLED = 12,
} ifunc_failure;

/**
 * Which thread makes progress for a source between the caller's calls.
 */
typedef enum {
    /**
     * The threads that use the source, in their calls. The default.
     */
    IFUNC_PROGRESS_CALLER = 0,
    /**
     * A thread of the source's.
     */
    IFUNC_PROGRESS_THREAD = 1,
} ifunc_progress;

/**
 * A set of names that images may import.
 */
typedef enum {
    /**
     * The C library as far as it computes, allocates, formats, prints and locks.
     */
    IFUNC_SET_LIBC = 0,
} ifunc_set;

/**
 * What ends an invocation alone, and what ends the process.
 */
typedef enum {
    /**
     * A panic of an ifunc ends the invocation; a fault ends the process. The default.
     */
    IFUNC_LEVEL_PANICS = 0,
    /**
     * A fault of an ifunc ends the invocation, too: SIGSEGV, SIGBUS, SIGFPE, SIGILL, a stack that overflows.
     */
    IFUNC_LEVEL_CONTAINED = 1,
    /**
     * Ifuncs run in processes of their own, on copies of their target arguments: see `ifunc_target_options_set_runner_program`.
     */
    IFUNC_LEVEL_PROCESS = 2,
} ifunc_level;

/**
 * Which invocations a target times for its counters.
 */
typedef enum {
    /**
     * The first 64 of each ifunc on each connection, then one in 64. The default.
     */
    IFUNC_TIMING_SAMPLED = 0,
    /**
     * Every one.
     */
    IFUNC_TIMING_ALL = 1,
    /**
     * None.
     */
    IFUNC_TIMING_OFF = 2,
} ifunc_timing;

/**
 * Why a target did not start an invocation or did not install an image.
 */
typedef enum {
    /**
     * No image is bound to the handle.
     */
    IFUNC_REJECTION_UNBOUND = 1,
    /**
     * The target's policy refuses the image.
     */
    IFUNC_REJECTION_POLICY = 2,
    /**
     * The image is malformed.
     */
    IFUNC_REJECTION_BAD_IMAGE = 3,
    /**
     * The image's bytes do not have the id they were sent under.
     */
    IFUNC_REJECTION_ID_MISMATCH = 4,
    /**
     * The image has another ABI version.
     */
    IFUNC_REJECTION_ABI_VERSION = 5,
    /**
     * The image is for another architecture.
     */
    IFUNC_REJECTION_ARCHITECTURE = 6,
    /**
     * The target's CPU lacks a feature.
     */
    IFUNC_REJECTION_CPU_FEATURE = 7,
    /**
     * The image is for another type of target arguments.
     */
    IFUNC_REJECTION_TARGET_TYPE = 8,
    /**
     * The target does not provide an import.
     */
    IFUNC_REJECTION_MISSING_IMPORT = 9,
    /**
     * The target provides an import with another signature.
     */
    IFUNC_REJECTION_IMPORT_SIGNATURE = 10,
    /**
     * The image needs a shared library that the target does not provide.
     */
    IFUNC_REJECTION_NEEDED_LIBRARY = 11,
    /**
     * The target's code cache is full.
     */
    IFUNC_REJECTION_CACHE_FULL = 12,
    /**
     * A limit of the target is exceeded.
     */
    IFUNC_REJECTION_TOO_LARGE = 13,
    /**
     * The image's signature is not accepted.
     */
    IFUNC_REJECTION_SIGNATURE = 14,
    /**
     * The target runs shareable ifuncs only.
     */
    IFUNC_REJECTION_NOT_SHAREABLE = 16,
    /**
     * The target is out of resources.
     */
    IFUNC_REJECTION_RESOURCES = 17,
    /**
     * A quota of the target is used up.
     */
    IFUNC_REJECTION_QUOTA = 24,
    /**
     * The group has no such node.
     */
    IFUNC_REJECTION_NO_NODE = 18,
    /**
     * The node was lost before the invocation was sent to it.
     */
    IFUNC_REJECTION_NODE_LOST = 19,
    /**
     * The hop limit is reached.
     */
    IFUNC_REJECTION_HOP_LIMIT = 20,
    /**
     * The node's outbox is full.
     */
    IFUNC_REJECTION_NODE_BUSY = 21,
    /**
     * The deadline had passed before it could run.
     */
    IFUNC_REJECTION_TOO_LATE = 22,
    /**
     * The key that signed the image is revoked.
     */
    IFUNC_REJECTION_REVOKED = 26,
    /**
     * The target's policy does not grant an import.
     */
    IFUNC_REJECTION_IMPORT = 27,
    /**
     * The target's policy admits pure images only.
     */
    IFUNC_REJECTION_NOT_PURE = 28,
    /**
     * The node does not know the one that awaits the answer.
     */
    IFUNC_REJECTION_UNKNOWN_NODE = 25,
} ifunc_rejection;

/**
 * An invocation whose answer is awaited. One thread at a time may use it.
 */
typedef struct ifunc_call ifunc_call;

/**
 * A source that has said hello over an endpoint of the application's, and waits for the answer.
 */
typedef struct ifunc_connecting ifunc_connecting;

/**
 * Makes progress for a source in an event loop: it sends what waits for credit and what is due, and receives. The loop is:
 * `ifunc_driver_progress`; test the calls; `ifunc_driver_arm`; if that returned true, wait until the descriptor is readable or
 * `ifunc_driver_time_left` has passed; repeat. One thread at a time may use it.
 */
typedef struct ifunc_driver ifunc_driver;

/**
 * The nodes of a group, by number, and where they listen. One thread at a time may use it.
 */
typedef struct ifunc_group ifunc_group;

/**
 * An ifunc on a connection: sends payloads and receives answers. Any number of threads may use it at once.
 */
typedef struct ifunc_handle ifunc_handle;

/**
 * A payload that is made once, may be changed in place, and is sent many times, to many targets. Any number of threads may send it at
 * once, while none changes it.
 */
typedef struct ifunc_message ifunc_message;

/**
 * What is sent in it is awaited by `ifunc_source_finish`, which makes it. Only the function that gets it may use it.
 */
typedef struct ifunc_scope ifunc_scope;

/**
 * A connection to a target. Any number of threads may use it at once. It reconnects when the target comes back.
 */
typedef struct ifunc_source ifunc_source;

/**
 * Options of a source. Without a change they are the defaults.
 */
typedef struct ifunc_source_options ifunc_source_options;

/**
 * A snapshot of the counters of a target. Any number of threads may read it.
 */
typedef struct ifunc_stats ifunc_stats;

/**
 * An answer that comes in parts. One thread at a time may use it.
 */
typedef struct ifunc_stream ifunc_stream;

/**
 * A target: listens, installs what sources send, and runs it. One thread at a time uses it, except for what a function says that any
 * thread may call.
 */
typedef struct ifunc_target ifunc_target;

/**
 * Options of targets. They can be used for several. Without `ifunc_target_options_accept_code`,
 * `ifunc_target_options_accept_code_of_every_peer` or `ifunc_target_options_read_policy` a target rejects every image. One thread at a time may use them.
 */
typedef struct ifunc_target_options ifunc_target_options;

/**
 * The keys of a process for `tls://HOST:PORT`: its own, and those of its peers. One thread at a time may use them.
 */
typedef struct ifunc_tls_keys ifunc_tls_keys;

/**
 * A worker of the application's that was lent to the runtime. Its threads keep to the thread mode of the worker, calls of this interface
 * included.
 */
typedef struct ifunc_worker ifunc_worker;

/**
 * Sends the invocations of a scope. Returns 0; any other value makes `ifunc_source_finish` return IFUNC_STATUS_CANCELLED.
 */
typedef int (*ifunc_scope_function)(ifunc_scope *scope, void *user);

/**
 * How the invocations of a scope ended.
 */
typedef struct {
    /**
     * Invocations that succeeded.
     */
    uint64_t executed;
    /**
     * Invocations that failed, or were not started.
     */
    uint64_t failed;
} ifunc_finished;

/**
 * Counters of a connection, or of all.
 */
typedef struct {
    /**
     * Frames from sources, of any kind.
     */
    uint64_t frames;
    /**
     * Bytes of payloads and images from sources.
     */
    uint64_t bytes_in;
    /**
     * Bytes of answers and reasons to sources.
     */
    uint64_t bytes_out;
    /**
     * Images bound to handles.
     */
    uint64_t installs;
    /**
     * Invocations that succeeded.
     */
    uint64_t executed;
    /**
     * Invocations that started and failed.
     */
    uint64_t failed;
    /**
     * Messages that the target did not run.
     */
    uint64_t rejected;
    /**
     * Images that the target did not install.
     */
    uint64_t refused;
    /**
     * How often frames waited because their source did not read its answers.
     */
    uint64_t stalls;
} ifunc_counts;

/**
 * What a target says about itself.
 */
typedef struct {
    /**
     * The address that it listens at.
     */
    const char *address;
    /**
     * Its process id.
     */
    uint32_t pid;
    /**
     * Time since it listens, in nanoseconds.
     */
    uint64_t uptime_ns;
    /**
     * Connections so far.
     */
    uint64_t connected;
    /**
     * Bytes of code memory used by installed images.
     */
    uint64_t code_used;
    /**
     * Installed images.
     */
    uint64_t images;
    /**
     * Sums over all connections, closed ones included.
     */
    ifunc_counts counts;
} ifunc_target_totals;

/**
 * Counters of a connected source.
 */
typedef struct {
    /**
     * Number of its connection on the target.
     */
    uint64_t connection;
    /**
     * Its user id; -1 if the transport does not know it.
     */
    int64_t uid;
    /**
     * Its process id; -1 if the transport does not know it.
     */
    int64_t pid;
    /**
     * Time since it connected, in nanoseconds.
     */
    uint64_t connected_ns;
    /**
     * Images bound to its handles.
     */
    uint64_t bound;
    /**
     * Counters of the connection.
     */
    ifunc_counts counts;
} ifunc_source_counts;

/**
 * Counters of an ifunc.
 */
typedef struct {
    /**
     * The name in the image.
     */
    const char *name;
    /**
     * BLAKE3 of the image, 32 bytes.
     */
    const uint8_t *id;
    /**
     * Size of the image in bytes.
     */
    uint64_t size;
    /**
     * Bytes of code memory that the image occupies; 0 if it is not installed.
     */
    uint64_t memory;
    /**
     * Handles bound to it now.
     */
    uint64_t bound;
    /**
     * Invocations that started.
     */
    uint64_t hits;
    /**
     * Invocations that failed.
     */
    uint64_t failed;
    /**
     * Bytes of their payloads.
     */
    uint64_t payload_bytes;
    /**
     * Bytes of their answers.
     */
    uint64_t answer_bytes;
    /**
     * Median duration of the timed invocations, in nanoseconds; 0: none was timed.
     */
    uint64_t median_ns;
    /**
     * Longest duration of the timed invocations, in nanoseconds, rounded up; 0: none was timed.
     */
    uint64_t longest_ns;
} ifunc_entry_counts;

/**
 * Whether a target that serves has served enough: it is called after each poll that ran something. A value other than 0: it has.
 */
typedef int (*ifunc_done_function)(void *target_args, void *user);

/**
 * Any function: cast to it, and cast back by those who call it.
 */
typedef void (*ifunc_function)(void);

/**
 * A connected source, as far as the kernel identifies it.
 */
typedef struct {
    /**
     * Number of the connection on this target.
     */
    uint64_t connection;
    /**
     * Its user id; -1 if the transport does not know it.
     */
    int64_t uid;
    /**
     * Its process id; -1 if the transport does not know it.
     */
    int64_t pid;
} ifunc_source_info;

/**
 * An image that asks to be installed, by one of its entries.
 */
typedef struct {
    /**
     * The name that the image gives the entry; not an identity.
     */
    const char *name;
    /**
     * BLAKE3 of its bytes: its identity, 32 bytes.
     */
    const uint8_t *id;
    /**
     * Its size in bytes.
     */
    size_t len;
    /**
     * The name that the policy gives the key that signed it; null: it was accepted as unsigned code.
     */
    const char *signer;
} ifunc_image_info;

/**
 * Whether an image may be installed; 0: no. It is called by the thread that serves, one at a time. What it gets is valid during the call.
 */
typedef int (*ifunc_validate_function)(const ifunc_source_info *source, const ifunc_image_info *image, void *user);

/**
 * An invocation that ended early.
 */
typedef struct {
    /**
     * The ifunc.
     */
    const char *ifunc;
    /**
     * The source that sent it.
     */
    ifunc_source_info source;
    /**
     * Why it ended: a panic, a fault, its deadline, too little stack, or a panic of the host.
     */
    ifunc_failure why;
    /**
     * The message of a panic, the signal and the address of a fault, the limit of a deadline.
     */
    const char *detail;
    /**
     * The target arguments, as the invocation left them. Where several threads serve, others use them now.
     */
    void *target_args;
} ifunc_escaped;

/**
 * What the host does after an invocation ended early. 0: the target goes on; otherwise it stops serving. What it gets is valid during the
 * call.
 */
typedef int (*ifunc_escape_function)(const ifunc_escaped *escaped, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Waits for the answer, at most the timeout of the handle. After IFUNC_STATUS_TIMEOUT the caller may wait again. A call that has ended
 * returns the same status every time. `call` must not be null.
 */
ifunc_status ifunc_call_wait(ifunc_call *call);

/**
 * As `ifunc_call_wait`, but waits at most `timeout_ns` nanoseconds. `call` must not be null.
 */
ifunc_status ifunc_call_wait_for(ifunc_call *call, uint64_t timeout_ns);

/**
 * As `ifunc_call_wait`, but does not wait: IFUNC_STATUS_IN_PROGRESS if there is no answer yet. `call` must not be null.
 */
ifunc_status ifunc_call_test(ifunc_call *call);

/**
 * The answer of a call that ended with IFUNC_STATUS_OK, valid until the call is destroyed; otherwise null, also if `call` is null. `len`
 * may be null; otherwise it receives the number of bytes. The pointer of an empty answer is not null.
 */
const void *ifunc_call_answer(const ifunc_call *call,
                              size_t *len);

/**
 * Frees a call, and drops its answer. An invocation that was sent still runs. Null: does nothing.
 */
void ifunc_call_destroy(ifunc_call *call);

/**
 * Waits for several calls, at most `timeout_ns` nanoseconds for all: until each has ended, well or not. Returns the status of the first
 * that did not end well; IFUNC_STATUS_TIMEOUT if one has not ended. `calls` may be null if `count` is 0; null elements are skipped.
 */
ifunc_status ifunc_call_wait_all(ifunc_call *const *calls,
                                 size_t count,
                                 uint64_t timeout_ns);

/**
 * Makes the driver of a source, which has at most one. Nothing may be null.
 */
ifunc_status ifunc_driver_create(const ifunc_source *source, ifunc_driver **driver);

/**
 * The descriptor to wait for, until the driver is destroyed; -1 if `driver` is null.
 */
int32_t ifunc_driver_fd(const ifunc_driver *driver);

/**
 * Receives what has arrived, and sends what is due. Whether anything arrived; false if `driver` is null.
 */
bool ifunc_driver_progress(const ifunc_driver *driver);

/**
 * Arms the descriptor. False: there is something to do already, or `driver` is null.
 */
bool ifunc_driver_arm(const ifunc_driver *driver);

/**
 * Nanoseconds until the next `ifunc_driver_progress` at the latest; IFUNC_NO_LIMIT: the descriptor reports everything; 0 if `driver` is
 * null.
 */
uint64_t ifunc_driver_time_left(const ifunc_driver *driver);

/**
 * Frees a driver: the threads that use the source make progress again. Null: does nothing.
 */
void ifunc_driver_destroy(ifunc_driver *driver);

/**
 * The version of the library, such as `0.1.0`; never null. Any thread.
 */
const char *ifunc_rt_version(void);

/**
 * The text of the calling thread's last error: what went wrong, where, and what to do. Never null; empty if there was none. A
 * function that succeeds leaves it as it is. It is valid until the next error of the thread, and no longer than the thread.
 */
const char *ifunc_rt_last_error(void);

/**
 * More about the calling thread's last error: an `ifunc_failure` of IFUNC_STATUS_FAILED, an `ifunc_rejection` of
 * IFUNC_STATUS_REJECTED, what `payload_init` returned of IFUNC_STATUS_PAYLOAD; otherwise 0. IFUNC_STATUS_EARLIER has the
 * reason of the send that failed.
 */
uint32_t ifunc_rt_last_reason(void);

/**
 * Makes a group in which this node has a number, and no other node is known yet. `group` must not be null.
 */
ifunc_status ifunc_group_create(uint32_t number, ifunc_group **group);

/**
 * Makes the group of the processes that a launcher started (`mpirun`, `srun`): numbers are its ranks, and the environment says where
 * addresses are found (IFUNC_RENDEZVOUS, IFUNC_HOSTS, IFUNC_HOSTFILE). `group` must not be null.
 */
ifunc_status ifunc_group_launched(ifunc_group **group);

/**
 * Adds a node that listens at an address. The number of this node is ignored: the list may be the same on all. Nothing may be null.
 */
ifunc_status ifunc_group_add_node(ifunc_group *group,
                                  uint32_t number,
                                  const char *address);

/**
 * How long joining waits for the other nodes, in nanoseconds. Default 60 s. `group` must not be null.
 */
ifunc_status ifunc_group_set_timeout(ifunc_group *group, uint64_t ns);

/**
 * Joins without waiting for the others: a link is made when something is sent to its node first. `group` must not be null.
 */
ifunc_status ifunc_group_set_on_demand(ifunc_group *group);

/**
 * The number of this node; UINT32_MAX if `group` is null.
 */
uint32_t ifunc_group_number(const ifunc_group *group);

/**
 * Frees a group; targets keep what they joined with. Null: does nothing.
 */
void ifunc_group_destroy(ifunc_group *group);

/**
 * Makes a target a node of a group, and waits for links to the other nodes; they may all join at the same time. The group may be destroyed
 * afterwards. Nothing may be null.
 */
ifunc_status ifunc_target_join(ifunc_target *target,
                               const ifunc_group *group);

/**
 * Adds a node to the group of a target that has joined, or says where a node listens that was restarted elsewhere. Any thread. Nothing may
 * be null.
 */
ifunc_status ifunc_target_add_node(const ifunc_target *target,
                                   uint32_t number,
                                   const char *address);

/**
 * Makes a source that sends over the link to a node of the group. IFUNC_STATUS_PEER_GONE: there is no link to it now. The thread that
 * polls the target polls the link. Any thread. Nothing may be null.
 */
ifunc_status ifunc_target_node_source(const ifunc_target *target,
                                      uint32_t number,
                                      ifunc_source **source);

/**
 * Releases a handle. Its messages and calls may outlive it. Null: does nothing.
 */
void ifunc_handle_destroy(ifunc_handle *handle);

/**
 * The ifunc's name, valid as long as the handle; null if `handle` is null.
 */
const char *ifunc_handle_name(const ifunc_handle *handle);

/**
 * BLAKE3 of the image: 32 bytes, valid as long as the handle; null if `handle` is null.
 */
const uint8_t *ifunc_handle_id(const ifunc_handle *handle);

/**
 * The image, the bytes that travel once per connection, valid as long as the handle; null if `handle` is null. `len` may be null;
 * otherwise it receives their number.
 */
const void *ifunc_handle_image(const ifunc_handle *handle,
                               size_t *len);

/**
 * Makes another handle of the same ifunc, whose sends and calls wait at most `ns` nanoseconds. Nothing may be null.
 */
ifunc_status ifunc_handle_with_timeout(const ifunc_handle *handle, uint64_t ns, ifunc_handle **other);

/**
 * Makes another handle of the same ifunc, whose invocations travel in batches: see `ifunc_source_options_set_aggregation`. Nothing may
 * be null.
 */
ifunc_status ifunc_handle_aggregated(const ifunc_handle *handle,
                                     ifunc_handle **other);

/**
 * Makes another handle of the same ifunc, whose invocations may go on from node to node of a group so often. Default 16384. Nothing may
 * be null.
 */
ifunc_status ifunc_handle_with_hop_limit(const ifunc_handle *handle,
                                         uint16_t hops,
                                         ifunc_handle **other);

/**
 * Sends without waiting for an outcome; waits for credit only. If it fails, `ifunc_source_flush` or a later send returns the error
 * (IFUNC_STATUS_EARLIER): over shared memory, one of the 16 sends after the target's report has arrived. `args` are the arguments of
 * `payload_init`, which gets pointer and number as they are, or the payload itself (`ifunc_source_load_bytes`); null if `n` is 0. `handle`
 * must not be null.
 */
ifunc_status ifunc_handle_send(const ifunc_handle *handle,
                               const void *args,
                               size_t n);

/**
 * As `ifunc_handle_send`, but never waits: IFUNC_STATUS_WOULD_BLOCK if there is no credit. `args` may be null, `handle` not.
 */
ifunc_status ifunc_handle_try_send(const ifunc_handle *handle,
                                   const void *args,
                                   size_t n);

/**
 * Sends, and makes a call to wait for. `args` as for `ifunc_handle_send`. `handle` and `call` must not be null.
 */
ifunc_status ifunc_handle_call(const ifunc_handle *handle, const void *args, size_t n, ifunc_call **call);

/**
 * As `ifunc_handle_call`, but never waits for credit: IFUNC_STATUS_WOULD_BLOCK if there is none. `args` may be null, nothing else.
 */
ifunc_status ifunc_handle_try_call(const ifunc_handle *handle,
                                   const void *args,
                                   size_t n,
                                   ifunc_call **call);

/**
 * Sends, waits for the answer at most the handle's timeout, and writes it to `answer`. `answer_len` receives its whole length, and may be
 * null. If it is longer than `capacity`, the beginning is written: IFUNC_STATUS_TRUNCATED. `args` as for `ifunc_handle_send`; `answer` may
 * be null if `capacity` is 0; `handle` must not be null.
 */
ifunc_status ifunc_handle_call_wait(const ifunc_handle *handle,
                                    const void *args,
                                    size_t n,
                                    void *answer,
                                    size_t capacity,
                                    size_t *answer_len);

/**
 * Calls an ifunc that answers in parts. `args` as for `ifunc_handle_send`. `handle` and `stream` must not be null.
 */
ifunc_status ifunc_handle_stream(const ifunc_handle *handle, const void *args, size_t n, ifunc_stream **stream);

/**
 * Makes a message for the ifunc of a handle. `args` as for `ifunc_handle_send`. `handle` and `message` must not be null.
 */
ifunc_status ifunc_message_create(const ifunc_handle *handle,
                                  const void *args,
                                  size_t n,
                                  ifunc_message **message);

/**
 * Makes its payload anew, from other arguments. After an error it must be set again before it is sent. `message` must not be null.
 */
ifunc_status ifunc_message_set(ifunc_message *message,
                               const void *args,
                               size_t n);

/**
 * The payload, to be changed in place; its address is valid until the message is set or destroyed. Null if `message` is null. `len` may be
 * null; otherwise it receives the number of bytes.
 */
void *ifunc_message_payload(ifunc_message *message,
                            size_t *len);

/**
 * Sends a message, as `ifunc_handle_send` does, by a handle of the same ifunc of any source. `handle` may be null: the one that the message
 * was made of. `message` must not be null.
 */
ifunc_status ifunc_message_send(const ifunc_message *message,
                                const ifunc_handle *handle);

/**
 * As `ifunc_message_send`, but never waits: IFUNC_STATUS_WOULD_BLOCK if there is no credit. `handle` may be null, `message` not.
 */
ifunc_status ifunc_message_try_send(const ifunc_message *message,
                                    const ifunc_handle *handle);

/**
 * Sends a message, as `ifunc_message_send` does, and makes a call to wait for. `message` and `call` must not be null.
 */
ifunc_status ifunc_message_call(const ifunc_message *message, const ifunc_handle *handle, ifunc_call **call);

/**
 * As `ifunc_message_call`, but never waits for credit: IFUNC_STATUS_WOULD_BLOCK if there is none. `handle` may be null, nothing else.
 */
ifunc_status ifunc_message_try_call(const ifunc_message *message,
                                    const ifunc_handle *handle,
                                    ifunc_call **call);

/**
 * Frees a message. Null: does nothing.
 */
void ifunc_message_destroy(ifunc_message *message);

/**
 * Becomes a runner process if a target started this program as one, and does not return then. Otherwise it returns at once. Call it at
 * the beginning of `main` in a program that `ifunc_target_options_set_runner_program` names, before anything else is done.
 */
void ifunc_run_if_started_by_target(void);

/**
 * The program that a target with IFUNC_LEVEL_PROCESS starts: `ifunc-runner`, or one whose `main` begins with
 * `ifunc_run_if_started_by_target`, such as this one itself. It is started without environment variables. Default: `ifunc-runner` beside this
 * program, or the program that the environment variable IFUNC_RUNNER names. The first of the functions about runners replaces what a policy
 * file says about them. Nothing may be null.
 */
ifunc_status ifunc_target_options_set_runner_program(ifunc_target_options *options,
                                                     const char *path);

/**
 * Bytes of memory that the ifuncs in a runner process may use. Default 256 MiB. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_runner_memory(ifunc_target_options *options, uint64_t bytes);

/**
 * CPU time of a runner process until the kernel ends it, in nanoseconds, of which whole seconds count, at least one. Default: without a
 * limit. `ifunc_target_options_set_max_run_time` bounds a single invocation. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_runner_cpu_time(ifunc_target_options *options,
                                                      uint64_t ns);

/**
 * Runner processes at a time. An image for which there is none is refused. Default 64. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_runners(ifunc_target_options *options, size_t runners);

/**
 * Whether runner processes may start on a kernel without Landlock, where the filter of system calls alone keeps them from files. Default: no.
 * `options` must not be null.
 */
ifunc_status ifunc_target_options_set_without_landlock(ifunc_target_options *options,
                                                       bool yes);

/**
 * Calls `send` once, with a scope and `user`, and waits until every invocation has ended that it sent in the scope, and every one that
 * those sent, on whichever nodes of the group. Failed invocations are counted in `finished`, and are no error; the texts of the first are
 * then what `ifunc_rt_last_error` returns, one per line. `finished` and `user` may be null; `source` and `send` must not be.
 */
ifunc_status ifunc_source_finish(const ifunc_source *source,
                                 ifunc_scope_function send,
                                 void *user,
                                 ifunc_finished *finished);

/**
 * Sends an invocation in a scope, as `ifunc_handle_send` does. The handle is of the source of the scope. `scope` and `handle` must not be
 * null.
 */
ifunc_status ifunc_scope_send(const ifunc_scope *scope,
                              const ifunc_handle *handle,
                              const void *args,
                              size_t n);

/**
 * Sends an invocation in a scope, as `ifunc_handle_call` does. The handle is of the source of the scope. `scope`, `handle` and `call` must
 * not be null.
 */
ifunc_status ifunc_scope_call(const ifunc_scope *scope,
                              const ifunc_handle *handle,
                              const void *args,
                              size_t n,
                              ifunc_call **call);

/**
 * Makes options with the defaults. Never null. `ifunc_source_options_destroy` frees them.
 */
ifunc_source_options *ifunc_source_options_create(void);

/**
 * Frees options; sources keep what they were made with. Null: does nothing.
 */
void ifunc_source_options_destroy(ifunc_source_options *options);

/**
 * How long each call, send and flush waits, in nanoseconds, before it gives up. Default 30 s. `options` must not be null.
 */
ifunc_status ifunc_source_options_set_timeout(ifunc_source_options *options,
                                              uint64_t ns);

/**
 * How long connecting may take, in nanoseconds, with the wait for a target that does not listen yet. Default 5 s. `options` must not
 * be null.
 */
ifunc_status ifunc_source_options_set_connect_timeout(ifunc_source_options *options,
                                                      uint64_t ns);

/**
 * How long the next call or send tries to reconnect after the target went away, in nanoseconds; 0: not at all. Default 5 s. `options`
 * must not be null.
 */
ifunc_status ifunc_source_options_set_reconnect(ifunc_source_options *options,
                                                uint64_t ns);

/**
 * How long a target that vanished with its host may be silent, in nanoseconds, before it is taken for dead. Default 5 s. `options`
 * must not be null.
 */
ifunc_status ifunc_source_options_set_peer_timeout(ifunc_source_options *options,
                                                   uint64_t ns);

/**
 * Which thread makes progress: an `ifunc_progress`. `options` must not be null.
 */
ifunc_status ifunc_source_options_set_progress(ifunc_source_options *options, uint32_t progress);

/**
 * Whether a target of another user, over `shm`, is taken. Default: no. `options` must not be null.
 */
ifunc_status ifunc_source_options_set_other_users(ifunc_source_options *options, bool yes);

/**
 * Largest ring that the source maps for one direction of a connection, in bytes. Default 64 MiB. `options` must not be null.
 */
ifunc_status ifunc_source_options_set_max_ring(ifunc_source_options *options,
                                               size_t bytes);

/**
 * Memory for answers that were received and belong to calls that were not destroyed, in bytes. Default 256 MiB. `options` must not
 * be null.
 */
ifunc_status ifunc_source_options_set_max_answers(ifunc_source_options *options,
                                                  size_t bytes);

/**
 * When batches of `ifunc_handle_aggregated` are sent: when they have so many bytes (default 8 KiB), and so many nanoseconds after
 * their first invocation (default 100 us; IFUNC_NO_LIMIT: not before a caller needs them to be). `options` must not be null.
 */
ifunc_status ifunc_source_options_set_aggregation(ifunc_source_options *options,
                                                  size_t bytes,
                                                  uint64_t delay_ns);

/**
 * Connects to a target: `shm:NAME`, `ucx://HOST:PORT`, `ucx-put://HOST:PORT`, `ucx-worker:HEX` or `loopback:NAME`. Waits for a target
 * that does not listen yet. `options` may be null: the defaults. `address` and `source` must not be null.
 */
ifunc_status ifunc_source_connect(const char *address,
                                  const ifunc_source_options *options,
                                  ifunc_source **source);

/**
 * Closes the connection, when its handles, messages and calls are destroyed, too: they may outlive it. Null: does nothing.
 */
void ifunc_source_destroy(ifunc_source *source);

/**
 * Loads an ifunc by its name: from `NAME.so` in a folder of IFUNC_LIB_DIR, of UCX_IFUNC_LIB_DIR, beside the executable, or in
 * `target/ifunc/release`. Opens the library, whose `payload_init` then makes the payload from the arguments of each call. So its author
 * is trusted with this process. Nothing may be null.
 */
ifunc_status ifunc_source_load(const ifunc_source *source,
                               const char *name,
                               ifunc_handle **handle);

/**
 * As `ifunc_source_load`, from this file. `entry` is the name of the ifunc; null: the only one in it. Nothing else may be null.
 */
ifunc_status ifunc_source_load_path(const ifunc_source *source,
                                    const char *path,
                                    const char *entry,
                                    ifunc_handle **handle);

/**
 * Loads an ifunc from the bytes of its library or of its image, which are copied. Nothing is opened: the arguments of each call are the
 * payload. `entry` is the name of the ifunc; null: the only one in it. Nothing else may be null.
 */
ifunc_status ifunc_source_load_bytes(const ifunc_source *source,
                                     const void *bytes,
                                     size_t len,
                                     const char *entry,
                                     ifunc_handle **handle);

/**
 * Waits until the target has consumed everything that was sent before, at most the source's timeout. The error may be that of an
 * earlier send. `source` must not be null.
 */
ifunc_status ifunc_source_flush(const ifunc_source *source);

/**
 * As `ifunc_source_flush`, but waits at most `timeout_ns` nanoseconds. `source` must not be null.
 */
ifunc_status ifunc_source_flush_for(const ifunc_source *source, uint64_t timeout_ns);

/**
 * Sends the open batch of `ifunc_handle_aggregated`, and does not wait for the target to run it. `source` must not be null.
 */
ifunc_status ifunc_source_push(const ifunc_source *source);

/**
 * Writes what carries the connection now, such as `shm` or `tcp/eth0`: at most `capacity` bytes, the final zero included. Returns the
 * length of the whole text without it; 0 while there is no connection, or if `source` is null. `text` may be null if `capacity` is 0.
 */
size_t ifunc_source_transport(const ifunc_source *source,
                              char *text,
                              size_t capacity);

/**
 * Asks the target for its counters, and waits at most `timeout_ns` nanoseconds. `ifunc_stats_destroy` frees them. Nothing may be null.
 */
ifunc_status ifunc_source_target_stats(const ifunc_source *source,
                                       uint64_t timeout_ns,
                                       ifunc_stats **stats);

/**
 * What the target says about itself, and the sums over all connections. Strings live as long as the snapshot. Nothing may be null.
 */
ifunc_status ifunc_stats_totals(const ifunc_stats *stats,
                                ifunc_target_totals *totals);

/**
 * Number of connected sources; 0 if `stats` is null.
 */
size_t ifunc_stats_source_count(const ifunc_stats *stats);

/**
 * The counters of a connected source, in the order of connections. Nothing may be null.
 */
ifunc_status ifunc_stats_source(const ifunc_stats *stats, size_t index, ifunc_source_counts *source);

/**
 * Number of ifuncs: the installed ones, and refused or evicted ones as far as the target remembers them; 0 if `stats` is null.
 */
size_t ifunc_stats_entry_count(const ifunc_stats *stats);

/**
 * The counters of an ifunc; those with the most invocations come first. Strings live as long as the snapshot. Nothing may be null.
 */
ifunc_status ifunc_stats_entry(const ifunc_stats *stats,
                               size_t index,
                               ifunc_entry_counts *entry);

/**
 * Frees a snapshot. Null: does nothing.
 */
void ifunc_stats_destroy(ifunc_stats *stats);

/**
 * The name of a status, such as `IFUNC_STATUS_TIMEOUT`; never null. Any thread.
 */
const char *ifunc_status_name(int32_t status);

/**
 * Waits for the next part, at most the timeout of the handle. IFUNC_STATUS_END: there are no more. `part` receives its address, valid
 * until the next call of this function and until the stream is destroyed, and null without a part; `len` its length. Nothing may be null.
 */
ifunc_status ifunc_stream_next(ifunc_stream *stream,
                               const void **part,
                               size_t *len);

/**
 * Frees a stream, and cancels its call if it has not ended. Null: does nothing.
 */
void ifunc_stream_destroy(ifunc_stream *stream);

/**
 * Makes a target that listens: `shm:NAME`, `ucx://HOST:PORT`, `ucx-put://HOST:PORT`, `ucx-worker:` or `loopback:NAME`. Port 0 stands for any
 * free port. `options` may be null: then the target accepts no code. Nothing else may be null.
 */
ifunc_status ifunc_target_listen(const char *address,
                                 const ifunc_target_options *options,
                                 ifunc_target **target);

/**
 * Closes the connections and frees the target. IFUNC_STATUS_IN_USE: it is being polled or serves, and nothing was done. Null: does nothing.
 */
ifunc_status ifunc_target_destroy(ifunc_target *target);

/**
 * The address that sources connect to, with the port that was chosen, valid as long as the target; null if `target` is null. Any thread.
 */
const char *ifunc_target_address(const ifunc_target *target);

/**
 * Number of connected sources; 0 if `target` is null, or is being polled or serves.
 */
size_t ifunc_target_connections(const ifunc_target *target);

/**
 * Number of installed images; 0 if `target` is null, or is being polled or serves.
 */
size_t ifunc_target_images(const ifunc_target *target);

/**
 * Polls every connection once and runs what has arrived, at most 64 frames of each; never blocks. `handled` may be null; otherwise it
 * receives the number of frames, and of invocations in batches. `target_args` is what ifuncs get, any pointer, null included; it is what
 * the accepted code takes it for (`ifunc_target_options_set_target_type`). `target` must not be null.
 */
ifunc_status ifunc_target_poll(ifunc_target *target,
                               void *target_args,
                               size_t *handled);

/**
 * Serves until `ifunc_target_stop`. An idle target sleeps. `target_args` as for `ifunc_target_poll`. `target` must not be null.
 */
ifunc_status ifunc_target_serve(ifunc_target *target,
                                void *target_args);

/**
 * Serves until `done` returns another value than 0, or until `ifunc_target_stop`. `target_args` as for `ifunc_target_poll`; `user` may be
 * null, too. `target` and `done` must not be null.
 */
ifunc_status ifunc_target_serve_until(ifunc_target *target,
                                      void *target_args,
                                      ifunc_done_function done,
                                      void *user);

/**
 * Serves on `threads` threads, the calling one included, until `ifunc_target_stop`. Only ifuncs run that are shareable
 * (IFUNC_SHAREABLE in C, `&T` in Rust). `target_args` as for `ifunc_target_poll`, for several threads. `target` must not be null.
 */
ifunc_status ifunc_target_serve_shared(ifunc_target *target,
                                       void *target_args,
                                       size_t threads);

/**
 * Makes a target that serves return soon, now and in every later call. Any thread, an invocation included. Null: does nothing.
 */
void ifunc_target_stop(const ifunc_target *target);

/**
 * Sleeps until there may be something to poll for, at most `timeout_ns` nanoseconds. IFUNC_STATUS_IN_PROGRESS: the time has passed. After
 * `ifunc_target_stop` it returns at once. `target` must not be null.
 */
ifunc_status ifunc_target_wait(ifunc_target *target,
                               uint64_t timeout_ns);

/**
 * The descriptor of a target, for event loops, valid as long as it; -1 if `target` is null. The loop is: `ifunc_target_poll` until nothing
 * was handled; `ifunc_target_arm`; if that returned true, wait until the descriptor is readable, at most `ifunc_target_poll_interval`;
 * `ifunc_target_disarm`; repeat. Any thread.
 */
int ifunc_target_fd(const ifunc_target *target);

/**
 * Arms the descriptor of a target. False: there is something to do already; poll instead of waiting. False if `target` is null, or is being
 * polled or serves.
 */
bool ifunc_target_arm(ifunc_target *target);

/**
 * Undoes `ifunc_target_arm`. Null: does nothing.
 */
void ifunc_target_disarm(ifunc_target *target);

/**
 * Nanoseconds to wait for the descriptor at most; IFUNC_NO_LIMIT: it reports everything; 0 if `target` is null, or is being polled or serves.
 */
uint64_t ifunc_target_poll_interval(const ifunc_target *target);

/**
 * Takes a snapshot of the counters. `ifunc_stats_destroy` frees it. Any thread. Nothing may be null.
 */
ifunc_status ifunc_target_stats(const ifunc_target *target, ifunc_stats **stats);

/**
 * Exports a function, while the target serves, too: see `ifunc_target_options_export_function`. Any thread, also in an invocation. `signature`
 * may be null: any image may import it. Nothing else may be null.
 */
ifunc_status ifunc_target_add_function(const ifunc_target *target,
                                       const char *name,
                                       const char *signature,
                                       ifunc_function function);

/**
 * Exports a variable, while the target serves, too: see `ifunc_target_options_export_data`. Any thread, also in an invocation. `signature`
 * may be null: any image may import it. Nothing else may be null.
 */
ifunc_status ifunc_target_add_data(const ifunc_target *target,
                                   const char *name,
                                   const char *signature,
                                   void *data);

/**
 * Replaces an exported function by another one of the same type; installed ifuncs use it from now on. Any thread, also in an invocation.
 * `signature` may be null. Nothing else may be null.
 */
ifunc_status ifunc_target_replace_function(const ifunc_target *target,
                                           const char *name,
                                           const char *signature,
                                           ifunc_function function);

/**
 * Replaces an exported variable by another one of the same type; installed ifuncs use it from now on. Any thread, also in an invocation.
 * `signature` may be null. Nothing else may be null.
 */
ifunc_status ifunc_target_replace_data(const ifunc_target *target,
                                       const char *name,
                                       const char *signature,
                                       void *data);

/**
 * Exports a function or variable no more: invocations of images that import it are rejected. Waits until no invocation uses it, 5 s at most.
 * Any thread, also in an invocation. Nothing may be null.
 */
ifunc_status ifunc_target_remove_export(const ifunc_target *target,
                                        const char *name);

/**
 * Replaces the policy of a target while it serves by that of `options`: who connects, whose code runs, what it may import and use. The other
 * settings of `options` are not looked at. The target applies it within its next eight polls, and before it sleeps. A connection that the new
 * policy does not admit is ended, and code that it does not accept runs no more: what was sent and has not run is rejected with the reason.
 * IFUNC_STATUS_POLICY: the policy does not suit the target, or changes what holds for as long as it serves (the level, the limits of time and
 * stack, the runners, the sizes that sources were told); nothing has changed. Any thread, also in an invocation, but `options` on one at a
 * time. Nothing may be null.
 */
ifunc_status ifunc_target_replace_policy(const ifunc_target *target,
                                         const ifunc_target_options *options);

/**
 * Connects a target to another one over a link that carries invocations both ways. The thread that polls or serves the target polls the link:
 * it must not wait for answers (IFUNC_STATUS_WOULD_DEADLOCK). `options` may be null: the defaults. Nothing else may be null.
 */
ifunc_status ifunc_target_connect(ifunc_target *target,
                                  const char *address,
                                  const ifunc_source_options *options,
                                  ifunc_source **source);

/**
 * Makes options with the defaults. Never null. `ifunc_target_options_destroy` frees them.
 */
ifunc_target_options *ifunc_target_options_create(void);

/**
 * Frees options; targets keep what they were made with. Null: does nothing.
 */
void ifunc_target_options_destroy(ifunc_target_options *options);

/**
 * Accepts code from processes of the same user. A network does not tell users: see `ifunc_target_options_accept_code_of_every_peer` and
 * `ifunc_target_options_read_policy`. ACCEPTED CODE RUNS WITH ALL RIGHTS OF THIS PROCESS. See
 * `ifunc_target_options_export_function` for what an invocation that ends early does to the exported function that it is in. `options` must
 * not be null.
 */
ifunc_status ifunc_target_options_accept_code(ifunc_target_options *options);

/**
 * Accepts code from every peer that may connect: over UCX every process that reaches the address or the worker. As
 * `ifunc_target_options_accept_code` otherwise. `options` must not be null.
 */
ifunc_status ifunc_target_options_accept_code_of_every_peer(ifunc_target_options *options);

/**
 * Takes the policy of a file: who connects, whose code runs by which keys, what it may import and use. It replaces what was said before about
 * these; a later function changes what it names, and keeps the rest of the file. The keys of the file, and unsigned sources that it names, are trusted with this process. IFUNC_STATUS_POLICY: the file cannot be
 * used. Nothing may be null.
 */
ifunc_status ifunc_target_options_read_policy(ifunc_target_options *options,
                                              const char *path);

/**
 * Refuses code that was accepted otherwise if `validate` returns 0. It is called at every installation, and again for each installed image of each
 * connection when a policy replaces that of the target (`ifunc_target_replace_policy`), by that of the new policy: an image that it refuses
 * then is released, and its invocations are rejected. It may be asked about the slices of an image for other machines, too, which an image that
 * travels on takes along. `user` is passed to it, and may be null; it lives as long as the targets. Nothing else may be null.
 */
ifunc_status ifunc_target_options_accept_if(ifunc_target_options *options,
                                            ifunc_validate_function validate,
                                            void *user);

/**
 * Lets processes of all users connect over `shm`. Whose code runs is another question. `options` must not be null.
 */
ifunc_status ifunc_target_options_connect_any_user(ifunc_target_options *options);

/**
 * States the type of the target arguments, for ifuncs in Rust, which run on no other: the text that `cargo ifunc inspect` prints, such as
 * `u64`. A process may state 64 (IFUNC_STATUS_LIMIT). Ifuncs in C state no type and run on every target. `type` may be null or empty: no type, which is the default. `options` must not
 * be null.
 */
ifunc_status ifunc_target_options_set_target_type(ifunc_target_options *options,
                                                  const char *type);

/**
 * Lets images import a function by this name. It is what the accepted code takes it for, and lives as long as the targets. It runs on the
 * stack of the ifunc, as a part of the invocation, and nothing guards it: it must not be left by `longjmp` or a C++ exception; a fault in it
 * ends the process at every `ifunc_level`; a deadline waits until it returns. If it calls a function of the ifunc by a pointer, and that
 * panics, faults or meets the deadline, it is left by a jump, as by `longjmp`: locks that it holds stay locked. `signature` may be null:
 * any image may import it; otherwise it is the text of its type in Rust, with the name (`fn score(u32)->u32`), and images that state
 * another one are refused. Nothing else may be null.
 */
ifunc_status ifunc_target_options_export_function(ifunc_target_options *options,
                                                  const char *name,
                                                  const char *signature,
                                                  ifunc_function function);

/**
 * Lets images import a variable by this name. It is what the accepted code takes it for, and lives as long as the targets. `signature` may be
 * null, or is the text of its type in Rust, with the name (`static level:u64`). Nothing else may be null.
 */
ifunc_status ifunc_target_options_export_data(ifunc_target_options *options,
                                              const char *name,
                                              const char *signature,
                                              void *data);

/**
 * Lets images import the names of an `ifunc_set`. What was exported by its own name keeps its meaning. `options` must not be null.
 */
ifunc_status ifunc_target_options_allow_set(ifunc_target_options *options,
                                            uint32_t set);

/**
 * Lets images need a shared library by its soname, such as `libz.so.1`, and import what it defines. The target opens it when it is made.
 * Nothing may be null.
 */
ifunc_status ifunc_target_options_allow_library(ifunc_target_options *options,
                                                const char *soname);

/**
 * Whether accepted ifuncs may replace exports by functions and variables of their own images. Default: no. `options` must not be null.
 */
ifunc_status ifunc_target_options_allow_remote_exports(ifunc_target_options *options,
                                                       bool yes);

/**
 * Largest payload, in bytes. Default 64 MiB. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_payload(ifunc_target_options *options, size_t bytes);

/**
 * Largest image, in bytes. Default 16 MiB. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_image(ifunc_target_options *options, size_t bytes);

/**
 * Largest memory of one image, zero-initialised data included, in bytes. Default 64 MiB. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_image_memory(ifunc_target_options *options, size_t bytes);

/**
 * Largest answer, in bytes. Default 64 MiB. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_answer(ifunc_target_options *options, size_t bytes);

/**
 * Maximum number of handles per connection. Default 4096. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_handles(ifunc_target_options *options, size_t handles);

/**
 * Maximum number of connections. Default 1024. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_connections(ifunc_target_options *options, size_t connections);

/**
 * Memory for payloads and images that arrive in fragments and are not complete, of all connections, and how long, in nanoseconds, one may
 * take. Default 256 MiB and 60 s. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_unfinished_bodies(ifunc_target_options *options,
                                                        size_t bytes,
                                                        uint64_t age_ns);

/**
 * Memory of the images that one connection has bound, in bytes, and their number. Default 64 MiB and 1024. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_code_per_connection(ifunc_target_options *options,
                                                          size_t bytes,
                                                          size_t images);

/**
 * Address space for installed code of all connections, in bytes, and its maximum number of images. Default 256 MiB and 4096. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_code_cache(ifunc_target_options *options,
                                                 size_t bytes,
                                                 size_t images);

/**
 * Stack of injected code, in bytes, at least 512 KiB. Default 4 MiB. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_stack(ifunc_target_options *options, size_t bytes);

/**
 * Bytes of invocations for other nodes of the group that were not sent yet. Default 16 MiB. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_outbox(ifunc_target_options *options, size_t bytes);

/**
 * Frames in flight per connection and direction, a power of two of at least 2. Default 4096; over shared memory 1024 beside 64 other
 * connections, and 256 beside 256. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_credits(ifunc_target_options *options,
                                              uint32_t frames);

/**
 * Memory for the bodies of frames in flight, in bytes, per connection and direction, a power of two of at least 64 KiB. Default 2 MiB for
 * requests and 1 MiB for answers. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_ring(ifunc_target_options *options,
                                           uint32_t bytes);

/**
 * How long an invocation may run, in nanoseconds; it then ends as IFUNC_FAILURE_DEADLINE. Default: without a limit. An invocation in an
 * exported function ends when that returns. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_max_run_time(ifunc_target_options *options,
                                                   uint64_t ns);

/**
 * How long a source that vanished with its host may be silent, in nanoseconds, before it is taken for dead. Default 5 s. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_peer_timeout(ifunc_target_options *options,
                                                   uint64_t ns);

/**
 * Whether every payload is copied out of the transport's memory before use. Default: only those of other users. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_copy_payloads(ifunc_target_options *options,
                                                    bool yes);

/**
 * Whether sources can read the counters of the target. Default: those of the same user. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_share_stats(ifunc_target_options *options, bool yes);

/**
 * What ends an invocation alone: an `ifunc_level`. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_level(ifunc_target_options *options, uint32_t level);

/**
 * Which invocations are timed: an `ifunc_timing`. `options` must not be null.
 */
ifunc_status ifunc_target_options_set_timing(ifunc_target_options *options, uint32_t timing);

/**
 * What the host does after an invocation ended early, by a panic, a fault, its deadline or too little stack. The function is called on the
 * thread that serves, before the next invocation. `user` is passed to it, and may be null; it lives as long as the targets. Nothing else may
 * be null.
 */
ifunc_status ifunc_target_options_set_on_escape(ifunc_target_options *options,
                                                ifunc_escape_function on_escape,
                                                void *user);

/**
 * Reads the secret key of this process from the file `path`, which `cargo ifunc keygen` or `openssl genpkey -algorithm ed25519` wrote, and
 * which its owner alone may read. `ifunc_tls_keys_destroy` frees `*keys`. Nothing may be null.
 */
ifunc_status ifunc_tls_keys_read(const char *path,
                                 ifunc_tls_keys **keys);

/**
 * Adds the public key of a peer, in the file `path`: a target to which sources connect, or a source that a target admits. Nothing may be null.
 */
ifunc_status ifunc_tls_keys_add_peer(ifunc_tls_keys *keys,
                                     const char *path);

/**
 * Proves by the certificate in the file `path`, in PEM, who this process is. It is of the process's own key. Which certificates a target
 * admits is in its policy (`ifunc_target_options_read_policy`). Nothing may be null.
 */
ifunc_status ifunc_tls_keys_set_certificate(ifunc_tls_keys *keys,
                                            const char *path);

/**
 * Connects to targets that the authority certifies whose certificate is in the file `path`, in PEM, instead of those whose keys are known.
 * Their certificates must be of the name `target`; null: of the host of each address. `keys` and `path` must not be null.
 */
ifunc_status ifunc_tls_keys_set_authority(ifunc_tls_keys *keys,
                                          const char *path,
                                          const char *target);

/**
 * Frees keys; options keep what they were given. Null: does nothing.
 */
void ifunc_tls_keys_destroy(ifunc_tls_keys *keys);

/**
 * The keys of a source at `tls://` and at `ucx://`. Default: the files that IFUNC_TLS_KEY, IFUNC_TLS_PEERS, IFUNC_TLS_CERTIFICATE and IFUNC_TLS_AUTHORITY
 * name. Nothing may be null.
 */
ifunc_status ifunc_source_options_set_tls(ifunc_source_options *options,
                                          const ifunc_tls_keys *keys);

/**
 * The keys of a target that listens at `tls://`, or at `ucx://`. It admits their peers, and those of its policy. Default: as
 * `ifunc_source_options_set_tls` says. Nothing may be null.
 */
ifunc_status ifunc_target_options_set_tls(ifunc_target_options *options,
                                          const ifunc_tls_keys *keys);

/**
 * Lends a worker, and one id of active messages of it, which the application uses for nothing else and which is the same on both sides.
 * The context has UCP_FEATURE_AM. `flags` are IFUNC_WORKER_WAKEUP and IFUNC_WORKER_NO_PROGRESS, or 0. Context, worker and endpoints stay
 * the application's; they live until `ifunc_worker_close` has returned. The application's callbacks must not call this interface. Nothing
 * may be null.
 */
ifunc_status ifunc_worker_attach(struct ucp_context *context,
                                 struct ucp_worker *worker,
                                 uint16_t am_id,
                                 uint32_t flags,
                                 ifunc_worker **attached);

/**
 * Takes in what has happened, for all sources and targets of the worker; makes progress first, unless that is the application's business.
 * Whether anything had happened; false if `worker` is null.
 */
bool ifunc_worker_poll(const ifunc_worker *worker);

/**
 * The peer of an endpoint is gone, or the application is about to close the endpoint: the connections over it end, and it is not used
 * again. Nothing may be null.
 */
ifunc_status ifunc_worker_peer_gone(const ifunc_worker *worker,
                                    struct ucp_ep *ep);

/**
 * Ends all connections, and lets go of the worker: the application may destroy it. `IFUNC_STATUS_IN_USE` in the middle of a poll that reads from
 * a buffer of the worker's: nothing was done. Polls on other threads are waited for, for 1 s at most.
 * `worker` must not be null.
 */
ifunc_status ifunc_worker_close(const ifunc_worker *worker);

/**
 * Frees what `ifunc_worker_attach` made. The runtime lets go of the worker when its sources and targets are destroyed, too, or at once by
 * `ifunc_worker_close`. Null: does nothing.
 */
void ifunc_worker_destroy(ifunc_worker *worker);

/**
 * Makes a target that listens on the worker. Sources connect over endpoints to it, or at its address. `options` may be null: then the target
 * accepts no code. `worker` and `target` must not be null.
 */
ifunc_status ifunc_target_listen_on(const ifunc_worker *worker,
                                    const ifunc_target_options *options,
                                    ifunc_target **target);

/**
 * Connects over an endpoint to the target that listens on the worker at its other end. The endpoint lives until the source and what was
 * made of it are destroyed, or `ifunc_worker_peer_gone`. `options` may be null: the defaults. Nothing else may be null.
 */
ifunc_status ifunc_source_connect_over(const ifunc_worker *worker,
                                       struct ucp_ep *ep,
                                       const ifunc_source_options *options,
                                       ifunc_source **source);

/**
 * As `ifunc_source_connect_over`, but does not wait: `ifunc_connecting_poll` has the source. For a single thread that makes progress itself.
 * `options` may be null: the defaults. Nothing else may be null.
 */
ifunc_status ifunc_connecting_start(const ifunc_worker *worker,
                                    struct ucp_ep *ep,
                                    const ifunc_source_options *options,
                                    ifunc_connecting **connecting);

/**
 * The source, when the target has taken it; IFUNC_STATUS_IN_PROGRESS: ask again, after progress was made. After any other status it is
 * over. Nothing may be null.
 */
ifunc_status ifunc_connecting_poll(ifunc_connecting *connecting,
                                   ifunc_source **source);

/**
 * Frees it. The source that it made stays. Null: does nothing.
 */
void ifunc_connecting_destroy(ifunc_connecting *connecting);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IFUNC_RT_H */
/* Generated by `cargo xtask capi-header` from an interface with the digest b9d3cb3ef4dcf07d. */
