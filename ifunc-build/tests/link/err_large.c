//#Flags: -mcmodel=large
//#ExpectError: code model that counts from the GOT
//#ExpectError: compile without `-mcmodel=medium`
#include "ifunc.h"
ENTRY(err_large) { return (uint32_t)host_add(n, host_counter); }
