//#ExpectError: external symbol reached without the GOT: `host_counter`
#include "ifunc.h"
extern __attribute__((visibility("hidden"))) uint64_t host_counter;
ENTRY(err_hidden) { return (uint32_t)host_counter; }
