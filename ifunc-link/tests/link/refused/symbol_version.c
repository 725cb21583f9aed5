#include "../ifunc.h"
__asm__(".symver old_memcpy,memcpy@GLIBC_2.2.5");
void *old_memcpy(void *, const void *, size_t);
ENTRY(symbol_version)
{
    old_memcpy(out, payload, 8);
    return 0;
}
