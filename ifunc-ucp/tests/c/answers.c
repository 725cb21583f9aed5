/* Sends the message of its target, and lets the target make progress and poll before it ends. */
#include "answers.h"

#ifdef PAPER
size_t answers_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    return 1;
}

int answers_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    (void)payload_size;
    *(unsigned char *)payload = 5;
    return 0;
}
#else
size_t answers_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    (void)source_args_size;
    return 1;
}

int answers_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    (void)source_args;
    (void)source_args_size;
    (void)payload_size;
    *(unsigned char *)payload = 5;
    return 0;
}
#endif

void answers_main(void *payload, size_t payload_size, void *target_args)
{
    struct answers *answers = (struct answers *)target_args;
    ucs_status_t status;

    (void)payload_size;
    answers->tally.messages += 1000;
#ifdef THREECHAINS
    {
        void *to = NULL;
        size_t size = 0;

        if (ucp_ifunc_msg_get_payload_ptr(&answers->answer, &to, &size) != UCS_OK || size < 1)
            return;
        *(unsigned char *)to = (unsigned char)(*(unsigned char *)payload + 1);
    }
    status = ucp_ifunc_send_nbix(answers->ep, answers->answer, answers->remote_addr, answers->rkey);
#else
    (void)payload;
    status = ucp_ifunc_msg_send_nbix(answers->ep, answers->answer, answers->remote_addr, answers->rkey);
#endif
    if (status != UCS_OK && status != UCS_INPROGRESS)
        return;
    answers->progress(answers);
    answers->tally.messages += 1000;
}
