/* Uses every function of a variant of the interface as programs do, in a process that sends to itself: PAPER, SLIDES or THREECHAINS is
 * defined, and it is C and C++. Ends with 0 if all went well. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>

#include "answers.h"
#include "tally.h"

#define HEAP ((size_t)1 << 22)
/* What programs leave beside a payload. Clang unrolls the loop of `tally` so far that it takes more than those of the paper do. */
#if defined PAPER && !defined __clang__
#define SPACE 512
#else
#define SPACE 8192
#endif

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h ep;
static ucp_rkey_h rkey;
static ucp_mem_h memory;
static unsigned char *heap;

#define CHECK(holds)                                                                                                   \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(status) CHECK((status) == UCS_OK)

static ucs_status_t reg(const char *name, ucp_ifunc_h *ifunc)
{
#ifdef PAPER
    return ucp_register_ifunc(context, name, ifunc);
#else
    ucp_ifunc_reg_param_t param;
    char text[64];

    memset(&param, 0, sizeof param);
    strcpy(text, name);
    param.name = text;
    param.pure = 1;
#ifdef THREECHAINS
    param.llvm_bc = 1;
#endif
    return ucp_register_ifunc(context, param, ifunc);
#endif
}

static ucs_status_t poll(size_t offset, size_t size, void *args)
{
#ifdef THREECHAINS
    return ucp_poll_ifunc(context, heap + offset, size, args, worker);
#else
    ucp_worker_progress(worker);
    return ucp_poll_ifunc(context, heap + offset, size, args);
#endif
}

static void flush(void)
{
    ucp_request_param_t param;
    void *request;

    memset(&param, 0, sizeof param);
    request = ucp_worker_flush_nbx(worker, &param);
    if (request == NULL)
        return;
    CHECK(!UCS_PTR_IS_ERR(request));
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    ucp_request_free(request);
}

static void send_to(size_t offset, ucp_ifunc_msg_t msg)
{
    ucs_status_t status = ucp_ifunc_send_nbix(ep, msg, (uint64_t)(uintptr_t)(heap + offset), rkey);

    CHECK(status == UCS_OK || status == UCS_INPROGRESS);
    flush();
}

static void progress(struct answers *answers)
{
    flush();
    /* The answer, while the invocation that sent it has not ended. */
    OK(poll(HEAP / 2, HEAP / 2, &answers->tally));
}

static void open_ucx(const char *folder)
{
    ucp_params_t params;
    ucp_config_t *config;
    ucp_worker_params_t worker_params;
    ucp_mem_map_params_t map;
    ucp_mem_attr_t attributes;
    ucp_ep_params_t ep_params;
    ucp_address_t *address;
    size_t size;
    void *packed;

    OK(ucp_config_read(NULL, NULL, &config));
    /* As the variable would; other keys are UCX's own. */
    OK(ucp_config_modify(config, "IFUNC_LIB_DIR", folder));
    OK(ucp_config_modify(config, "TLS", "self,sm"));
    memset(&params, 0, sizeof params);
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA;
    OK(ucp_init(&params, config, &context));
    ucp_config_release(config);
    memset(&worker_params, 0, sizeof worker_params);
    OK(ucp_worker_create(context, &worker_params, &worker));
    memset(&map, 0, sizeof map);
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    map.length = HEAP;
    map.flags = UCP_MEM_MAP_ALLOCATE;
    OK(ucp_mem_map(context, &map, &memory));
    memset(&attributes, 0, sizeof attributes);
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    OK(ucp_mem_query(memory, &attributes));
    heap = (unsigned char *)attributes.address;
    memset(heap, 42, HEAP);
    OK(ucp_worker_get_address(worker, &address, &size));
    memset(&ep_params, 0, sizeof ep_params);
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address = address;
    OK(ucp_ep_create(worker, &ep_params, &ep));
    ucp_worker_release_address(worker, address);
    OK(ucp_rkey_pack(context, memory, &packed, &size));
    OK(ucp_ep_rkey_unpack(ep, packed, &rkey));
    ucp_rkey_buffer_release(packed);

    /* Nothing has been sent. */
    CHECK(poll(0, HEAP, NULL) == UCS_ERR_NO_MESSAGE);
}

static void close_ucx(void)
{
    ucp_request_param_t param;
    void *request;

    ucp_rkey_destroy(rkey);
    memset(&param, 0, sizeof param);
    request = ucp_ep_close_nbx(ep, &param);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
    OK(ucp_mem_unmap(context, memory));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void messages(void)
{
    ucp_ifunc_h tally_h = NULL, again = NULL, nowhere = NULL;
    ucp_ifunc_msg_t msg;
    struct tally tally;
    unsigned char *args = (unsigned char *)malloc(1 << 20);
    size_t size;

    CHECK(args != NULL);
    memset(args, 3, 1 << 20);
    memset(&tally, 0, sizeof tally);
    CHECK(reg("nowhere", &nowhere) == UCS_ERR_IO_ERROR);
    OK(reg("tally", &tally_h));
    OK(reg("tally", &again));
    CHECK(again == tally_h && tally_h != NULL);
    for (size = 1; size <= 1 << 20; size *= 2) {
        tally.sum = 0;
        OK(ucp_ifunc_msg_create(tally_h, args, size, &msg));
        CHECK(msg.ifunc_h == tally_h && msg.frame != NULL);
        CHECK(msg.frame_size > size && msg.frame_size <= size + SPACE);
        send_to(64, msg);
        OK(poll(64, HEAP - 64, &tally));
        CHECK(tally.sum == 3 * (uint64_t)size);
        CHECK((const unsigned char *)tally.payload > heap && (const unsigned char *)tally.payload < heap + HEAP);
        CHECK(poll(64, HEAP - 64, &tally) == UCS_ERR_NO_MESSAGE);
        /* Again, into a slot that is too small. */
        send_to(64, msg);
        CHECK(poll(64, msg.frame_size - 1, &tally) == UCS_ERR_CANCELED);
        CHECK(poll(64, HEAP - 64, &tally) == UCS_ERR_NO_MESSAGE);
#ifdef THREECHAINS
        {
            void *payload;
            size_t length;

            OK(ucp_ifunc_msg_get_payload_ptr(&msg, &payload, &length));
            CHECK(length == size);
            memset(payload, 4, length);
            send_to(64, msg);
            tally.sum = 0;
            OK(poll(64, HEAP - 64, &tally));
            CHECK(tally.sum == 4 * (uint64_t)size);
        }
#endif
        ucp_ifunc_msg_free(msg);
    }
    args[0] = 0xff;
    CHECK(ucp_ifunc_msg_create(tally_h, args, 1, &msg) == UCS_ERR_CANCELED);
    ucp_deregister_ifunc(context, tally_h);
    CHECK(ucp_ifunc_msg_create(tally_h, args, 1, &msg) == UCS_ERR_NO_ELEM);
    free(args);
}

static void an_ifunc_that_answers(void)
{
    ucp_ifunc_h answers_h, tally_h;
    ucp_ifunc_msg_t msg;
    struct answers answers;
    unsigned char one = 1;

    memset(&answers, 0, sizeof answers);
    OK(reg("tally", &tally_h));
    OK(reg("answers", &answers_h));
    OK(ucp_ifunc_msg_create(tally_h, &one, 1, &answers.answer));
    OK(ucp_ifunc_msg_create(answers_h, NULL, 0, &msg));
    answers.worker = worker;
    answers.ep = ep;
    answers.rkey = rkey;
    answers.remote_addr = (uint64_t)(uintptr_t)(heap + HEAP / 2);
    answers.progress = progress;
    send_to(0, msg);
    OK(poll(0, HEAP / 2, &answers));
#ifdef THREECHAINS
    CHECK(answers.tally.sum == 6);
#else
    CHECK(answers.tally.sum == 1);
#endif
    CHECK(answers.tally.messages == 2001);
    ucp_ifunc_msg_free(msg);
    ucp_ifunc_msg_free(answers.answer);
    ucp_deregister_ifunc(context, tally_h);
    ucp_deregister_ifunc(context, answers_h);
}

#ifdef THREECHAINS
static void *read_file(const char *folder, const char *name, uint32_t *size)
{
    char path[4096];
    FILE *file;
    void *bytes = malloc(1 << 20);

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "rb");
    CHECK(file && bytes);
    *size = (uint32_t)fread(bytes, 1, 1 << 20, file);
    CHECK(feof(file));
    fclose(file);
    return bytes;
}

static void code_in_memory(const char *folder)
{
    char name[] = "tally", there[] = "aarch64-unknown-linux-gnu", here[] = "x86_64-pc-linux-gnu", dep[] = "libc.so.6";
    char bitcode[] = "BC\xc0\xde and what follows", *deps[1];
    ucp_ifunc_reg_param_t param;
    ucp_llvm_bc_t code[2];
    ucp_ifunc_h ifunc;
    ucp_ifunc_msg_t msg;
    struct tally tally;
    unsigned char one = 1;

    memset(&tally, 0, sizeof tally);
    memset(&param, 0, sizeof param);
    param.name = name;
    deps[0] = dep;
    code[0].triple = there;
    code[0].bc = bitcode;
    code[0].size = sizeof bitcode;
    CHECK(ucp_register_ifunc_im(context, param, code, 1, NULL, 0, &ifunc) == UCS_ERR_NO_ELEM);
    code[0].triple = here;
    CHECK(ucp_register_ifunc_im(context, param, code, 1, NULL, 0, &ifunc) == UCS_ERR_UNSUPPORTED);
    code[0].triple = there;
    code[1].triple = here;
    code[1].bc = read_file(folder, "tally.so", &code[1].size);
    OK(ucp_register_ifunc_im(context, param, code, 2, deps, 1, &ifunc));
    free(code[1].bc);
    OK(ucp_ifunc_msg_create(ifunc, &one, 1, &msg));
    send_to(0, msg);
    OK(poll(0, HEAP, &tally));
    CHECK(tally.sum == 1);
    ucp_ifunc_msg_free(msg);
    ucp_deregister_ifunc(context, ifunc);
}
#endif

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    open_ucx(argv[1]);
    messages();
    an_ifunc_that_answers();
#ifdef THREECHAINS
    code_in_memory(argv[1]);
#endif
    close_ucx();
    puts("done");
    return 0;
}
