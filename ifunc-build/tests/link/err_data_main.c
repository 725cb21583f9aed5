//#ExpectError: it is not a function
#include "ifunc.h"
uint64_t err_data_main_main = 1;
