//#Machines: x86-64
//#Libgcc: yes
//#ExpectImports:
// The constructor's function is called: libgcc knows the machine.
#include "ifunc.h"
ENTRY(cpu_supports)
{
    __builtin_cpu_init();
    out[0] = __builtin_cpu_supports("sse2") ? 1 : 2;
    out[1] = __builtin_cpu_supports("avx2") ? 1 : 2;
    out[2] = __builtin_cpu_is("intel") ? 1 : 2;
    return 0;
}
