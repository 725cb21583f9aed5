// What catches is never run; what throws is refused.
#include "../ifunc.h"
namespace shop {
struct Refund { uint64_t cents; };
NOINLINE static uint64_t pay(uint64_t cents)
{
    if (cents == 7)
        throw Refund{cents};
    return cents;
}
NOINLINE static uint64_t guarded(uint64_t cents)
{
    try {
        return pay(cents);
    } catch (...) {
        throw;
    }
}
}
extern "C" ENTRY(cxx_rethrow) { return uint32_t(shop::guarded(n)); }
