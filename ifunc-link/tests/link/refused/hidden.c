#include "../ifunc.h"
extern __attribute__((visibility("hidden"))) uint64_t host_counter;
ENTRY(hidden) { return (uint32_t)host_counter; }
