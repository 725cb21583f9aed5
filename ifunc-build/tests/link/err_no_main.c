//#ExpectError: entry not found: `err_no_main_main`
#include "ifunc.h"
uint32_t something_else(void) { return 1; }
