//#Flags: -ftls-model=initial-exec
#include "../ifunc.h"
extern __thread uint64_t theirs;
ENTRY(tls_initial_exec) { return (uint32_t)theirs; }
