#include "../ifunc.h"
uint64_t only_in_archive(uint64_t x) { return x * 3; }
