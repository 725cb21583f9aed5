//#ExpectError: 6 reasons
//#ExpectError: symbol that only the linker of a program defines: `__start_registry`
//#ExpectError: symbol that only the linker of a program defines: `__stop_registry`
//#ExpectError: put what the section collects into an array
//#ExpectError: symbol that only the linker of a program defines: `_end`
//#ExpectError: symbol that only the linker of a program defines: `__ehdr_start`
//#ExpectError: symbol that only the linker of a program defines: `__bss_start`
//#ExpectError: symbol that only the linker of a program defines: `__dso_handle`
//#ExpectError: which an image is not in
#include "ifunc.h"
extern int __start_registry[], __stop_registry[], _end[], __bss_start[];
extern char __ehdr_start[] __attribute__((visibility("default"))), __dso_handle[];
ENTRY(err_linker_symbols)
{
    const void *volatile all[] = {__start_registry, __stop_registry, _end, __bss_start, __ehdr_start, __dso_handle};
    return all[n % 6] != 0;
}
