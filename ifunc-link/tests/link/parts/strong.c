#include "../ifunc.h"
uint64_t overridden(void) { return 10; }
