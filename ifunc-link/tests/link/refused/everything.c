//#Object: parts/duplicate_b.c
//#Object: parts/absolute_b.c
//#Archive: parts/logger.c parts/unused.c
//#Libgcc: yes
//#Declared: host_add
// A reason of nearly every rule, in the order of the rules and not of the walk.
#include "../ifunc.h"
extern int __start_registry[];
extern __attribute__((visibility("hidden"))) uint64_t host_counter;
static __thread volatile uint64_t local;
static uint64_t plain(uint64_t x) { return x; }
static void *choose(void) { return (void *)plain; }
uint64_t dispatched(uint64_t) __attribute__((ifunc("choose")));
uint64_t twice(uint64_t x) { return x + x; }
uint64_t caller(uint64_t), log_number(uint64_t), absent(uint64_t);
__asm__(".symver versioned,other@V1\n");
extern uint8_t fixed[];
uint64_t versioned(uint64_t);
static volatile uint8_t page[8192] __attribute__((aligned(8192)));
NOINLINE static uint64_t a(uint64_t x) { return local + dispatched(x) + caller(x); }
NOINLINE static uint64_t b(uint64_t x) { return log_number(x) + absent(x) + host_counter; }
NOINLINE static uint64_t c(uint64_t x) { return versioned(x) + (uintptr_t)fixed + (uintptr_t)__start_registry; }
ENTRY(everything) { return (uint32_t)(a(n) + b(n) + c(n) + host_add(n, page[n % 8192])); }
