//#Flags: -flto
//#Configs: -O2
//#ExpectError: -flto
#include "ifunc.h"
ENTRY(err_lto) { return (uint32_t)n; }
