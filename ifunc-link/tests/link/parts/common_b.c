#include "../ifunc.h"
uint64_t tentative;
uint64_t shared_array[64];
uint64_t defined_elsewhere = 77;
void other_file(void)
{
    tentative += 1000;
    shared_array[63]++;
    shared_array[0] += shared_array[63];
}
