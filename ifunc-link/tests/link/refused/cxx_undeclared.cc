//#Declared: host_add
#include "../ifunc.h"
namespace shop {
template <typename T> struct Price { T cents; };
uint64_t discount(const Price<uint64_t> &, unsigned);
struct Rule { virtual uint64_t apply(uint64_t) const; virtual ~Rule(); };
}
static NOINLINE uint64_t total(uint64_t x) { return shop::discount({x}, 3); }
extern "C" ENTRY(cxx_undeclared) { return uint32_t(total(n)); }
