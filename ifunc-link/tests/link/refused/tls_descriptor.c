//#Machines: x86-64
//#Flags: -mtls-dialect=gnu2
//#Compilers: gcc
#include "../ifunc.h"
extern __thread uint64_t theirs;
ENTRY(tls_descriptor) { return (uint32_t)theirs; }
