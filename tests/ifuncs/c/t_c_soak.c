/* The same as `t_soak` in Rust, with the same ledger: see src/soak/mod.rs. */
#include <ifunc.h>

IFUNC_PAYLOAD_BOUND(t_c_soak);
IFUNC_MAIN_WITH_CONTEXT(t_c_soak);

#define SLOTS 4096
#define SOURCES 64

struct slot {
    uint64_t sender, source, count, hash;
};

struct total {
    uint64_t messages, connections, hash;
};

struct ledger {
    struct slot slots[SLOTS];
    struct total totals[SOURCES];
    uint64_t faults, first[4], abandoned, rounds;
};

enum { MISPLACED = 1, UNKNOWN_SENDER = 2 };

#define A UINT64_C(0x9e3779b97f4a7c15)
#define B UINT64_C(0xc2b2ae3d27d4eb4f)

/* The soak writes another number behind the mark. */
static const volatile struct {
    uint64_t mark[2], number;
} variant = {{UINT64_C(0x5eedc0de0dd50a4b), UINT64_C(0x1f0c5a1e7a57e9d3)}, 0};

static uint64_t mix(uint64_t stream, uint64_t next)
{
    uint64_t mixed = (stream ^ next * B) * A;
    return mixed ^ mixed >> 32;
}

static uint64_t word(const unsigned char *bytes, size_t n)
{
    uint64_t word = 0;
    __builtin_memcpy(&word, bytes, n < 8 ? n : 8);
    return word;
}

static uint64_t hash_of(const unsigned char *bytes, size_t n)
{
    uint64_t sums[4] = {A, B, ~A, ~B}, hash = n, at = 0;
    for (; n - at >= 32; at += 32)
        for (int i = 0; i < 4; i++) {
            uint64_t w;
            __builtin_memcpy(&w, bytes + at + 8 * i, 8);
            w = (sums[i] ^ w) * A;
            sums[i] = w << 29 | w >> 35;
        }
    for (int i = 0; i < 4; i++)
        hash = mix(hash, sums[i]);
    for (; at < n; at += 8)
        hash = mix(hash, word(bytes + at, n - at));
    return hash;
}

static void fault(struct ledger *ledger, uint64_t kind, uint64_t sender, uint64_t expected, uint64_t came)
{
    if (ledger->faults == 0) {
        ledger->first[0] = kind;
        ledger->first[1] = sender;
        ledger->first[2] = expected;
        ledger->first[3] = came;
    }
    ledger->faults += 1;
}

size_t t_c_soak_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_soak_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    __builtin_memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

uint32_t t_c_soak_main(void *payload, size_t n, void *target_args, struct ifunc_context *ctx)
{
    struct ledger *ledger = target_args;
    uint64_t sender = ifunc_sender(ctx), came, answer[3];
    struct slot *slot = &ledger->slots[sender % SLOTS];
    if (slot->sender != sender) {
        fault(ledger, UNKNOWN_SENDER, sender, 0, 0);
        return IFUNC_OK;
    }
    came = slot->count;
    __builtin_memcpy(&came, payload, n < 8 ? n : 8);
    if (came != slot->count)
        fault(ledger, MISPLACED, sender, slot->count, came);
    answer[0] = slot->count;
    slot->count += 1;
    slot->hash = mix(slot->hash, hash_of(payload, n));
    answer[1] = slot->hash;
    answer[2] = variant.number;
    return ifunc_answer(ctx, answer, sizeof answer);
}
