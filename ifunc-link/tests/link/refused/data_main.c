#include "../ifunc.h"
uint64_t data_main_main = 1;
