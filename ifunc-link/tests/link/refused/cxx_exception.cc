//#Declared: host_add
#include "../ifunc.h"
NOINLINE static uint64_t checked(uint64_t x)
{
    if (x > 100)
        throw x;
    return x;
}
extern "C" ENTRY(cxx_exception)
{
    try {
        return uint32_t(checked(n));
    } catch (uint64_t big) {
        return uint32_t(big / 2);
    }
}
