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
    ifunc_u32 *answer_lens;
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
        unsigned char *payload = batch->payloads, *answer = batch->answers; \
        ifunc_size capacity = batch->answers_capacity, most = batch->max_answer; \
        ifunc_size stride = batch->stride, len = batch->payload_size; \
        ifunc_u32 count = batch->count, index; \
        (void)size; \
        for (index = 0; index < count; index++, payload += stride) { \
            ifunc_u32 code; \
            if (answer) { \
                if (index > 0 && capacity < most) \
                    return 0; \
                ctx->answer = answer; \
                ctx->answer_capacity = most; \
                ctx->answer_len = 0; \
            } \
            batch->started = index + 1; \
            code = MAIN(payload, len, target, ctx); \
            if (RETURNS_STATUS && code) \
                return code; \
            if (answer) { \
                ifunc_size used = ctx->answer_len; \
                if (used > most) \
                    return 0; \
                batch->answer_lens[index] = (ifunc_u32)used; \
                used = (used + 7) / 8 * 8; \
                used = used < capacity ? used : capacity; \
                answer += used; \
                capacity -= used; \
            } \
        } \
        return 0; \
    }

