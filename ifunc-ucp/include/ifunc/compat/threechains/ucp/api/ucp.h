/* UCX with the ifunc interface of Three-Chains (2022): see ../../../common.h. */
#ifndef IFUNC_COMPAT_THREECHAINS_UCP_H
#define IFUNC_COMPAT_THREECHAINS_UCP_H

#pragma GCC system_header

#ifdef IFUNC_COMPAT_VARIANT
#error "two variants of the ifunc interface in one program: their interfaces differ; give one -I .../ifunc/compat/VARIANT"
#endif
#define IFUNC_COMPAT_VARIANT "threechains"

#include_next <ucp/api/ucp.h>

#include "../../../common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ucp_register_ifunc ucp_register_ifunc_threechains
#define ucp_register_ifunc_im ucp_register_ifunc_im_threechains
#define ucp_poll_ifunc ucp_poll_ifunc_threechains

/* `pure`: the code imports nothing. It has no effect: an image states what it imports. `llvm_bc`: the code is bitcode. It has no effect
 * either: NAME.so is searched and its image is sent, with machine code for one architecture. */
typedef struct ucp_ifunc_reg_param {
    char *name;
    int pure;
    int llvm_bc;
} ucp_ifunc_reg_param_t;

/* Code in memory, for the machine that a triple such as x86_64-pc-linux-gnu names. */
typedef struct ucp_llvm_bc {
    char *triple;
    void *bc;
    uint32_t size;
} ucp_llvm_bc_t;

/* Finds NAME.so and registers it. A name that is registered with this context gives the same handle. Returns UCS_ERR_INVALID_PARAM if the
 * name is no name of an ifunc, UCS_ERR_IO_ERROR if there is no such library, or it holds no ifunc of this name, and
 * UCS_ERR_EXCEEDS_LIMIT. A line on the standard error has the reason. */
ucs_status_t ucp_register_ifunc(ucp_context_h context, ucp_ifunc_reg_param_t param, ucp_ifunc_h *ifunc_p);

/* Registers code in memory: of `bcs`, the first one whose triple is of this machine. It is the bytes of a library that `cargo ifunc
 * build` made, or of an image alone, whose payload is then a copy of the source arguments. The bytes are copied. `deps` are shared
 * libraries that are opened on this side, for NAME_payload_init; what NAME_main needs on the target is stated in the image. Returns
 * UCS_ERR_UNSUPPORTED for LLVM bitcode, UCS_ERR_NO_ELEM if no triple is of this machine, and what ucp_register_ifunc returns. */
ucs_status_t ucp_register_ifunc_im(ucp_context_h context, ucp_ifunc_reg_param_t param, ucp_llvm_bc_t *bcs, int n_bcs,
                                   char **deps, int n_deps, ucp_ifunc_h *ifunc_p);

/* Runs the message in a buffer: common.h has the statuses, and what a program must know of its peers. Returns UCS_ERR_UNSUPPORTED, too,
 * for code of another architecture; the buffer is free then. If there is no message, it makes the worker progress, and looks again. A
 * null worker makes none. */
ucs_status_t ucp_poll_ifunc(ucp_context_h context, void *buffer, size_t buffer_size, void *target_args,
                            ucp_worker_h worker);

/* The payload of a message, and its size unless `size` is null: it may be changed between two sends. An ifunc may call this in its
 * NAME_main. Returns UCS_ERR_INVALID_PARAM if the frame is no message. */
ucs_status_t ucp_ifunc_msg_get_payload_ptr(ucp_ifunc_msg_t *msg, void **payload, size_t *size);

#ifdef __cplusplus
}
#endif

#endif
