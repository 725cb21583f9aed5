/* UCX with the ifunc interface of the Two-Chains paper (2021): see ../../../common.h. */
#ifndef IFUNC_COMPAT_PAPER_UCP_H
#define IFUNC_COMPAT_PAPER_UCP_H

#pragma GCC system_header

#ifdef IFUNC_COMPAT_VARIANT
#error "two variants of the ifunc interface in one program: their interfaces differ; give one -I .../ifunc/compat/VARIANT"
#endif
#define IFUNC_COMPAT_VARIANT "paper"

#include_next <ucp/api/ucp.h>

#include "../../../common.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ucp_register_ifunc ucp_register_ifunc_paper
#define ucp_poll_ifunc ucp_poll_ifunc_paper

/* Finds NAME.so and registers it. A name that is registered with this context gives the same handle. Returns UCS_ERR_INVALID_PARAM if the
 * name is no name of an ifunc, UCS_ERR_IO_ERROR if there is no such library, or it holds no ifunc of this name, and
 * UCS_ERR_EXCEEDS_LIMIT. A line on the standard error has the reason. */
ucs_status_t ucp_register_ifunc(ucp_context_h context, const char *ifunc_name, ucp_ifunc_h *ifunc_p);

/* Runs the message in a buffer: common.h has the statuses, and what a program must know of its peers. It makes no worker progress. */
ucs_status_t ucp_poll_ifunc(ucp_context_h context, void *buffer, size_t buffer_size, void *target_args);

#ifdef __cplusplus
}
#endif

#endif
