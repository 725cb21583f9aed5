#include <stdint.h>
uint64_t settled = 42;
