#include "../ifunc.h"
extern __thread uint64_t theirs;
ENTRY(tls_extern) { return (uint32_t)theirs; }
