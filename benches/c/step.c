/* `next_step` of the host, as a function of a shared library. */
#include <stdint.h>

uint64_t next_step(uint64_t x) {
    return x * 6364136223846793005u + 1442695040888963407u;
}
