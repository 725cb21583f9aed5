// Hidden and weak: zero, a linker would say. The target decides what is there, and cannot be asked for what is hidden.
#include "../ifunc.h"
__attribute__((weak, visibility("hidden"))) uint64_t maybe(uint64_t);
ENTRY(weak_hidden) { return maybe ? (uint32_t)maybe(n) : 3; }
