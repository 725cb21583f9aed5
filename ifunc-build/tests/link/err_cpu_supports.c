//#Libgcc: yes
//#ExpectError: constructor or destructor: `__cpu_indicator_init`
//#ExpectError: `asks` in err_cpu_supports.o
//#ExpectError: call `__builtin_cpu_init()` first
#include "ifunc.h"
// It would answer no on every machine.
NOINLINE static int asks(void) { return __builtin_cpu_supports("sse2"); }
ENTRY(err_cpu_supports) { return (uint32_t)asks(); }
