//#ExpectError: thread-local variable: `theirs`
#include "ifunc.h"
extern __thread uint64_t theirs;
ENTRY(err_tls_extern) { return (uint32_t)theirs; }
