/* `steps` of `ifunc-bench-ifuncs`, calling a function through an ordinary GOT. */
#include <stdint.h>

uint64_t next_step(uint64_t x);

uint64_t steps(uint64_t n) {
    uint64_t x = 1;
    for (uint64_t i = 0; i < n; i++)
        x = next_step(x);
    return x;
}
