#include "../ifunc.h"
extern int __start_registry[], __stop_registry[], _end[], __bss_start[];
extern char __ehdr_start[] __attribute__((visibility("default"))), __dso_handle[];
ENTRY(linker_symbols)
{
    const void *volatile all[] = {__start_registry, __stop_registry, _end, __bss_start, __ehdr_start, __dso_handle};
    return all[n % 6] != 0;
}
