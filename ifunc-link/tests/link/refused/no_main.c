#include "../ifunc.h"
uint32_t something_else(void) { return 1; }
