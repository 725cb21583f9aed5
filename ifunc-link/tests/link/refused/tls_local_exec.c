//#Flags: -fPIE -ftls-model=local-exec
#include "../ifunc.h"
static __thread volatile uint64_t counter;
ENTRY(tls_local_exec) { return (uint32_t)++counter; }
