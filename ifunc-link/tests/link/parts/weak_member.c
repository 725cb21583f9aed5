#include <stdint.h>
uint64_t asked(uint64_t x) { return x + 1; }
uint64_t beside(uint64_t x) { return x + 2; }
