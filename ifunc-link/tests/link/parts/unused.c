/* Never extracted: its defects do not matter. */
#include "../ifunc.h"
__thread int local;
uint64_t unused_member(uint64_t x) { return x + local; }
uint64_t kept(void) { return 20; }
__attribute__((constructor)) static void never(void) { local = 1; }
