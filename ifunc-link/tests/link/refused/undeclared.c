//#Configs: -O1 -O2 -O3 -Os -Og
//#Declared: host_add
// Symbols that compilers add, a symbol that nothing defines, and valid ones.
#include "../ifunc.h"
int printf(const char *, ...);
double fmod(double, double);
NOINLINE static double rest(double x) { return fmod(x, 3.5); }
ENTRY(undeclared)
{
    printf("%s\n", (const char *)payload);
    out[0] = host_add(n, 1) + host_mul(n, 2);
    return (uint32_t)rest((double)n);
}
