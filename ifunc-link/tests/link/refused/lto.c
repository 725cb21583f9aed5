//#Flags: -flto
//#Configs: -O2
#include "../ifunc.h"
ENTRY(lto) { return (uint32_t)n; }
