//#Flags: -fno-exceptions -fno-rtti -fno-threadsafe-statics
//#ExpectImports: host_add host_apply
//#Covers: R_X86_64_64 | data | image | install relocation
// Templates in groups, virtual functions, references, lambdas: what C++ is without a runtime of its own.
#include "ifunc.h"
namespace shop {
struct Rule {
    virtual uint64_t apply(uint64_t x) const = 0;
    virtual const char *name() const { return "rule"; }
};
template <unsigned Percent> struct Discount final : Rule {
    uint64_t apply(uint64_t x) const override { return x - x * Percent / 100; }
    const char *name() const override { return "discount"; }
};
struct Fee : Rule {
    uint64_t cents;
    explicit constexpr Fee(uint64_t cents) : cents(cents) {}
    uint64_t apply(uint64_t x) const override { return host_add(x, cents); }
};
template <typename T> struct Sum {
    T total{};
    template <typename U> Sum &operator<<(const U &x) { total += x; return *this; }
};
inline uint64_t shared_counter() { static uint64_t calls; return ++calls; }
}
extern "C" void __cxa_pure_virtual() { __builtin_trap(); }
static uint64_t twice(uint64_t x) { return x * 2; }
extern "C" ENTRY(cxx)
{
    shop::Discount<10> ten;
    shop::Discount<25> quarter;
    shop::Fee fee(payload[0]);
    const shop::Rule *volatile rules[] = {&ten, &quarter, &fee};
    shop::Sum<uint64_t> sum;
    for (auto &rule : rules)
        sum << rule->apply(1000 + n) << uint8_t(rule->name()[1]);
    auto pick = [&](auto which) { return host_apply(which, sum.total); };
    out[0] = sum.total;
    out[1] = pick(twice);
    out[2] = pick(+[](uint64_t x) { return x + 1; });
    uint64_t before = shop::shared_counter();
    out[3] = shop::shared_counter() - before;
    return 0;
}
