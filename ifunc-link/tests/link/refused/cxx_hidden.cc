//#Flags: -fvisibility=hidden
#include "../ifunc.h"
namespace host {
extern __attribute__((visibility("hidden"))) uint64_t prices[4];
}
extern "C" ENTRY(cxx_hidden) { return uint32_t(host::prices[n % 4]); }
