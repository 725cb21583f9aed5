//#Flags: -fPIE
//#Compilers: gcc
//#ExpectError: external symbol reached without the GOT: `host_counter`
//#ExpectError: not `-fPIE`
#include "ifunc.h"
ENTRY(err_pie) { return (uint32_t)host_counter; }
