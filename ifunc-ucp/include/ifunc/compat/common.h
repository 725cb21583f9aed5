/* What the three variants of the UCX ifunc interface have in common. Programs do not include this file: they include
 * <ucp/api/ucp.h>, with -I .../ifunc/compat/paper, .../slides or .../threechains before UCX's own folder, and link with -lucp_ifunc.
 *
 * The interface is that of the ifunc systems on UCX of 2021 and 2022. It works over stock UCX, 1.13 or later, as a shared library:
 * a message is a frame that one put writes into memory of the target, and that the target polls. Code travels in each frame.
 *
 * An ifunc NAME is built by `cargo ifunc build NAME.c`; the source finds NAME.so in the folder that UCX_IFUNC_LIB_DIR names when
 * the context is made (default /usr/lib), or that the configuration key IFUNC_LIB_DIR names. Targets need no such file. UCX warns
 * that it does not know the variable, unless UCX_WARN_UNUSED_ENV_VARS=n.
 */
#ifndef IFUNC_COMPAT_COMMON_H
#define IFUNC_COMPAT_COMMON_H

#pragma GCC system_header

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A registered ifunc. */
typedef struct ucp_ifunc *ucp_ifunc_h;

/* A message, which is passed by value: a frame that is complete as it lies there. The frame belongs to the message until
 * ucp_ifunc_msg_free, and to UCX while a send is under way. */
typedef struct ucp_ifunc_msg {
    ucp_ifunc_h ifunc_h;
    void *frame;
    size_t frame_size;
} ucp_ifunc_msg_t;

/* Forgets a registration. Messages that were made of it can still be sent, and must still be freed. The name can be registered again,
 * with other code. A handle that is not registered with this context is ignored. */
void ucp_deregister_ifunc(ucp_context_h context, ucp_ifunc_h ifunc_h);

/* Makes a message: asks the library of the ifunc for the size of the payload (NAME_payload_bound, or NAME_payload_get_max_size), and
 * lets NAME_payload_init write it. Returns UCS_ERR_CANCELED if NAME_payload_init does not return 0, UCS_ERR_NO_ELEM for a handle that
 * is not registered, UCS_ERR_NO_MEMORY, and UCS_ERR_EXCEEDS_LIMIT for a frame of 4 GiB or more. */
ucs_status_t ucp_ifunc_msg_create(ucp_ifunc_h ifunc_h, void *source_args, size_t source_args_size,
                                  ucp_ifunc_msg_t *msg_p);

/* Frees the frame of a message, of which no send may be under way. A null frame is ignored. */
void ucp_ifunc_msg_free(ucp_ifunc_msg_t msg);

/* Puts the frame of a message into memory of the target. Returns the status of ucp_put_nbi: UCS_OK, UCS_INPROGRESS, or an error;
 * UCS_ERR_INVALID_PARAM if the frame is no message. Where ucp_rkey_ptr finds the target's memory in this process, the frame is stored
 * there, and UCX puts one frame in 64: the status of that one is an error if UCX knows that the target is gone. A message may be sent several times and to several targets. An ifunc may call
 * this in its NAME_main. */
ucs_status_t ucp_ifunc_send_nbix(ucp_ep_h ep, ucp_ifunc_msg_t msg, uint64_t remote_addr, ucp_rkey_h rkey);

/* The name that the paper's listing has. */
ucs_status_t ucp_ifunc_msg_send_nbix(ucp_ep_h ep, ucp_ifunc_msg_t msg, uint64_t remote_addr, ucp_rkey_h rkey);

/* ---- For the macros below. ---- */

void ucp_ifunc_context_made(ucp_context_h context, const ucp_config_t *config);
void ucp_ifunc_context_ends(ucp_context_h context);
ucs_status_t ucp_ifunc_set_lib_dir(const ucp_config_t *config, const char *folder);
void ucp_ifunc_config_ends(const ucp_config_t *config);

#ifdef __cplusplus
}
#endif

/* The interface reads its environment and its configuration when a context is made, and forgets a context when it ends. */
static inline ucs_status_t ucp_ifunc_init(const ucp_params_t *params, const ucp_config_t *config,
                                          ucp_context_h *context_p)
{
    ucs_status_t status = ucp_init(params, config, context_p);

    if (status == UCS_OK)
        ucp_ifunc_context_made(*context_p, config);
    return status;
}

static inline void ucp_ifunc_cleanup(ucp_context_h context)
{
    ucp_ifunc_context_ends(context);
    ucp_cleanup(context);
}

static inline ucs_status_t ucp_ifunc_config_modify(ucp_config_t *config, const char *name, const char *value)
{
    if (name && !strcmp(name, "IFUNC_LIB_DIR"))
        return ucp_ifunc_set_lib_dir(config, value);
    return ucp_config_modify(config, name, value);
}

static inline void ucp_ifunc_config_release(ucp_config_t *config)
{
    ucp_ifunc_config_ends(config);
    ucp_config_release(config);
}

#define ucp_init ucp_ifunc_init
#define ucp_cleanup ucp_ifunc_cleanup
#define ucp_config_modify ucp_ifunc_config_modify
#define ucp_config_release ucp_ifunc_config_release

/* What each variant says of its poll function.
 *
 * Runs the message in `buffer`, if there is a whole one, with `target_args` as the third argument of its NAME_main, and returns
 *   UCS_OK                 it was run, and the buffer is free for the next message;
 *   UCS_ERR_NO_MESSAGE     there is none, or it has not arrived whole; nothing was changed;
 *   UCS_ERR_CANCELED       it was not run, or did not run to its end: it is longer than the buffer, holds no code that this process can run,
 *                          panicked, or its sums have been wrong for a second. A line on the standard error has the reason. The buffer is
 *                          free;
 *   UCS_ERR_NO_RESOURCE    too many invocations are inside of one another; nothing was changed;
 *   UCS_ERR_INVALID_PARAM  a null pointer.
 * No byte outside of the buffer is read or written. The buffer may hold anything while it is idle. The message is taken out of the
 * buffer before it runs: NAME_main may cause the next one to be put there. Its payload stays where it is, and may be overwritten
 * by the next message. NAME_main may call this function.
 *
 * THE CODE IN THE MESSAGE RUNS WITH ALL RIGHTS OF THIS PROCESS. Nothing authenticates a message. Each process that can write to the
 * buffer, or to any other memory of this process, runs code of its choice here, imports whatever this process has, and loads shared
 * libraries of the system by their names. Over UCX that is each process that can reach a worker of this process: rkeys are enforced by
 * verbs hardware alone, and over TCP and shared memory a peer without one can write. So the function is for networks whose hosts and
 * users trust each other. The sums that a frame holds detect errors, not attackers. A payload is checked, and then run where it lies: a
 * peer may change it meanwhile. For authentication and policies, see ifunc_rt.h. */

#endif
