/* The three forms that the interface has had: PAPER, SLIDES or THREECHAINS is defined. */
#ifndef VARIANT_H
#define VARIANT_H

#include <string.h>

#include <ucp/api/ucp.h>

static inline ucs_status_t register_named(ucp_context_h context, const char *name, int pure, ucp_ifunc_h *ifunc)
{
#ifdef PAPER
    (void)pure;
    return ucp_register_ifunc(context, name, ifunc);
#else
    ucp_ifunc_reg_param_t param;
    char text[16];

    memset(&param, 0, sizeof param);
    strcpy(text, name);
    param.name = text;
    param.pure = pure;
    return ucp_register_ifunc(context, param, ifunc);
#endif
}

#ifndef THREECHAINS
/* The first two forms do not progress the worker, and their programs do not either while they wait: UCX puts into shared memory without the
 * target's help. Over TCP, a program must. */
static int makes_progress = 0;
#endif

static inline ucs_status_t poll_for(ucp_context_h context, void *buffer, size_t size, void *args, ucp_worker_h worker)
{
#ifdef THREECHAINS
    return ucp_poll_ifunc(context, buffer, size, args, worker);
#else
    ucs_status_t status = ucp_poll_ifunc(context, buffer, size, args);

    if (status == UCS_ERR_NO_MESSAGE && makes_progress)
        ucp_worker_progress(worker);
    return status;
#endif
}

#endif
