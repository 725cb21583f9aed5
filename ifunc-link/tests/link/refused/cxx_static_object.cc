#include "../ifunc.h"
namespace shop {
struct Basket {
    uint64_t items;
    Basket() : items(host_add(1, 2)) {}
};
Basket basket;
}
extern "C" ENTRY(cxx_static_object) { return uint32_t(shop::basket.items + n); }
