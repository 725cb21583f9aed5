/* features: switch: jump table; switch: table of values */
#include "corpus.h"
#include "host/host.h"

NOINLINE static const char *name(unsigned kind)
{
    switch (kind) {
    case 0: return "zero";
    case 1: return "one";
    case 2: return "two";
    case 3: return "three";
    case 4: return "four";
    case 5: return "five";
    case 6: return "six";
    case 7: return "seven";
    case 8: return "eight";
    default: return "many";
    }
}

CASE(c_jump_table)
{
    uint64_t state = w->seed;

    for (size_t i = 0; i < n; i++) {
        switch (in[i] % 19) {
        case 0: state += 3; break;
        case 1: state *= 5; break;
        case 2: state ^= state >> 7; break;
        case 3: state -= in[i]; break;
        case 4: state = ~state; break;
        case 5: state <<= 1; break;
        case 6: state = host_add(state, i); break;
        case 7: state = host_mul(state, i); break;
        case 8: state |= 0x10101; /* fall through */
        case 9: state >>= 2; break;
        case 10: put(w, state); break;
        case 11: w->calls++; break;
        case 12: state = state / 3 * 7; break;
        case 13: state %= 0xffffffffb; break;
        default: state = state * 31 + in[i];
        }
    }
    put(w, state);
    for (unsigned i = 0; i < 10; i++)
        put_text(w, name((unsigned)((state >> i) % 10)));
}
