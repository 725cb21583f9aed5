#include "../ifunc.h"
namespace shop {
class Till {
    static thread_local uint64_t total;
public:
    NOINLINE static uint64_t add(uint64_t price);
    NOINLINE uint64_t sell(const uint8_t *prices, size_t n) const;
};
thread_local uint64_t Till::total = 5;
uint64_t Till::add(uint64_t price) { return total += price; }
uint64_t Till::sell(const uint8_t *prices, size_t n) const
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += add(prices[i]);
    return sum;
}
}
extern "C" ENTRY(cxx_thread_local) { return uint32_t(shop::Till().sell(payload, n)); }
