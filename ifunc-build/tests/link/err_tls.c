//#ExpectError: thread-local variable: `counter`
//#ExpectError: referenced by `bump` in
//#ExpectError: help: an image has no thread-local storage
#include "ifunc.h"
static __thread uint64_t counter;
NOINLINE static uint64_t bump(void) { return ++*(volatile uint64_t *)&counter; }
ENTRY(err_tls) { return (uint32_t)(out[0] = bump()); }
