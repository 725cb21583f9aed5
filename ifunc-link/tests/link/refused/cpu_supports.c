//#Machines: x86-64
//#Libgcc: yes
#include "../ifunc.h"
// It would answer no on every machine.
NOINLINE static int asks(void) { return __builtin_cpu_supports("sse2"); }
ENTRY(cpu_supports) { return (uint32_t)asks(); }
