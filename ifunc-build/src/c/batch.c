/* Runs a run of entries of a batch: see `Batch` in `ifunc_abi::context`. */
typedef __SIZE_TYPE__ ifunc_size;
typedef __UINT32_TYPE__ ifunc_u32;

struct ifunc_batch_context {
    ifunc_u32 version, size;
    __UINT64_TYPE__ sender;
    unsigned char *answer;
    ifunc_size answer_capacity, answer_len;
};

struct ifunc_batch {
    ifunc_u32 version, size;
    unsigned char *payloads;
    ifunc_size payload_size, stride;
    ifunc_u32 count;
    volatile ifunc_u32 started;
    unsigned char *answers;
    ifunc_size answers_capacity, max_answer;
    unsigned char *answer_lens;
    ifunc_size answer_lens_stride;
};

#ifdef __cplusplus
#define IFUNC_BATCH_C extern "C"
#else
#define IFUNC_BATCH_C extern
#endif

#define IFUNC_BATCH(MAIN, BATCH, RETURNS_STATUS) \
    IFUNC_BATCH_C ifunc_u32 MAIN(void *, ifunc_size, void *, struct ifunc_batch_context *); \
    IFUNC_BATCH_C ifunc_u32 BATCH(struct ifunc_batch *, ifunc_size, void *, struct ifunc_batch_context *); \
    ifunc_u32 BATCH(struct ifunc_batch *batch, ifunc_size size, void *target, struct ifunc_batch_context *ctx) \
    { \
        unsigned char *payload = batch->payloads; \
        ifunc_size capacity = batch->answers_capacity, most = batch->max_answer; \
        ifunc_size stride = batch->stride, len = batch->payload_size; \
        unsigned char *lens = batch->answer_lens; \
        ifunc_size lens_stride = batch->answer_lens_stride; \
        ifunc_u32 count = batch->count, index = 0; \
        (void)size; \
        for (;;) { \
            ifunc_size used; \
            ifunc_u32 code; \
            batch->started = ++index; \
            ctx->answer_len = 0; \
            code = MAIN(payload, len, target, ctx); \
            if (!RETURNS_STATUS) \
                code = 0; \
            used = ctx->answer ? ctx->answer_len : 0; \
            if (code || used > most) \
                return code; \
            *(ifunc_u32 *)lens = (ifunc_u32)used; \
            lens += lens_stride; \
            used = (used + 7) / 8 * 8; \
            used = used < capacity ? used : capacity; \
            ctx->answer += used; \
            capacity -= used; \
            payload += stride; \
            if (index == count || capacity < most) \
                return 0; \
        } \
    }
