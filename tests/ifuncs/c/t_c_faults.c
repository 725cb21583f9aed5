/* Ends early, in every way that C has. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct state {
    uint64_t counter;
    uint64_t changes;
};

size_t t_c_faults_payload_bound(void *source_args, size_t n)
{
    (void)source_args;
    return n;
}

int t_c_faults_payload_init(void *source_args, size_t n, void *payload, size_t *payload_size)
{
    memcpy(payload, source_args, n);
    *payload_size = n;
    return 0;
}

static size_t down(volatile char *above, size_t n)
{
    volatile char room[256];

    room[0] = above[0];
    return down(room, n + 1) + (size_t)room[0];
}

void t_c_faults_main(void *payload, size_t payload_size, void *target_args)
{
    struct state *state = target_args;
    char *volatile nowhere = NULL;
    volatile int zero = 0;
    volatile int some = 100;
    char room[64];
    uint64_t way;

    memcpy(&way, payload, sizeof way);
    (void)payload_size;
    switch (way) {
    case 0:
        state->changes += (uint64_t)nowhere[8];
        break;
    case 1:
        state->changes += (uint64_t)(some / zero);
        break;
    case 2:
        __builtin_trap();
    case 3:
        state->changes += down("", 0);
        break;
    case 4:
        for (;;) {
            zero = 0;
        }
    case 5:
        ((void (*)(void))nowhere)();
        break;
    case 6:
        memcpy(room, nowhere, (size_t)way * 8 + (size_t)zero);
        state->changes += (uint64_t)room[0];
        break;
    default:
        state->changes += 1;
    }
}
