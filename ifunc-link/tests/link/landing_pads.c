//#Flags: -fexceptions -fasynchronous-unwind-tables
//#ExpectImport: host_add
//#Covers: R_X86_64_PLT32 | call rel32 | image | trap
// What unwinds through here would clean up. Nothing ever does.
#include "ifunc.h"
static void count(uint64_t *what) { host_counter += *what - *what; }
static NOINLINE uint64_t guarded(uint64_t x)
{
    __attribute__((cleanup(count))) uint64_t local = x;
    return host_add(local, 1);
}
ENTRY(landing_pads)
{
    out[0] = guarded(n);
    return 0;
}
