// Every name that such a section ever had.
#include "../ifunc.h"
static volatile uint64_t ready;
static void init(void) { ready = 1; }
static void old_init(void) { ready = 2; }
static void before(void) { ready = 3; }
static void last(void) { ready = 4; }
__attribute__((section(".init_array"), used)) static void (*const a)(void) = init;
__attribute__((section(".ctors"), used)) static void (*const b)(void) = old_init;
__attribute__((section(".preinit_array"), used)) static void (*const c)(void) = before;
__attribute__((section(".dtors"), used)) static void (*const d)(void) = last;
ENTRY(constructor_sections) { return (uint32_t)ready; }
