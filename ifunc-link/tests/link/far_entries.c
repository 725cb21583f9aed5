//#Machines: aarch64
//#ExpectImport: host_add
//#Configs: -O0 -O2
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | import | slot
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | import | GOT entry
//#Covers: R_AARCH64_LD64_GOT_LO12_NC | ldr, str | import | GOT entry
//#Covers: R_AARCH64_CALL26 | bl | import | thunk
// More imports than one load reaches in the target's GOT. Most are weak, and not there.
#include "ifunc.h"
#define ONE(i) extern uint8_t absent_##i __attribute__((weak));
#define TEN(i) ONE(i##0) ONE(i##1) ONE(i##2) ONE(i##3) ONE(i##4) ONE(i##5) ONE(i##6) ONE(i##7) ONE(i##8) ONE(i##9)
#define HUNDRED(i) TEN(i##0) TEN(i##1) TEN(i##2) TEN(i##3) TEN(i##4) TEN(i##5) TEN(i##6) TEN(i##7) TEN(i##8) TEN(i##9)
#define THOUSAND(i) \
    HUNDRED(i##0) HUNDRED(i##1) HUNDRED(i##2) HUNDRED(i##3) HUNDRED(i##4) HUNDRED(i##5) HUNDRED(i##6) HUNDRED(i##7) \
        HUNDRED(i##8) HUNDRED(i##9)
#define ALL THOUSAND(1) THOUSAND(2) THOUSAND(3) THOUSAND(4) HUNDRED(50)
ALL
#undef ONE
#define ONE(i) absent += &absent_##i != 0;
static NOINLINE uint64_t count(void)
{
    uint64_t absent = 0;
    ALL
    return absent;
}
static NOINLINE uint64_t later(uint64_t n)
{
    uint64_t (*volatile same)(uint64_t, uint64_t) = host_add;
    return host_add(n, 1) + host_mul(n, 3) + host_table[n % 8] + same(n, 2) + (same == host_add);
}
ENTRY(far_entries)
{
    out[0] = count();
    out[1] = later(n);
    return 0;
}
