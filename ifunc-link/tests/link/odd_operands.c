//#ExpectImports: host_add host_counter host_mul host_table
//#Covers: R_X86_64_GOTPCREL | mov xmm, [rip] | import | GOT entry by gcc
//#Covers: R_X86_64_REX_GOTPCRELX | cmp r64, [rip] | import | GOT entry
//#Covers: R_X86_64_REX_GOTPCRELX | sub r64, [rip] | import | GOT entry
// GOT entries as operands of instructions other than `mov`: compare, store two at once, add, test.
#include "ifunc.h"
struct pair { void *a, *b; };
static NOINLINE void fill(struct pair *p)
{
    p->a = (void *)host_add;
    p->b = (void *)host_mul;
}
static NOINLINE int which(const void *p)
{
    if (p == (void *)host_add)
        return 1;
    if (p == host_table)
        return 2;
    return p > (void *)&host_counter ? 3 : 3;
}
static NOINLINE uint64_t distance(const uint64_t *p) { return (uint64_t)(p - host_table); }
static NOINLINE uint64_t sum(uint64_t i) { return (uintptr_t)host_table + i - (uintptr_t)host_table; }
ENTRY(odd_operands)
{
    struct pair p[4];
    for (int i = 0; i < 4; i++)
        fill(&p[i]);
    out[0] = which(p[0].a) + 10 * which(host_table) + 100 * which(p);
    out[1] = ((uint64_t(*)(uint64_t, uint64_t))p[3].a)(n, 2);
    out[2] = ((uint64_t(*)(uint64_t, uint64_t))p[2].b)(n, 2);
    out[3] = distance(&host_table[payload[0] % 8]);
    out[4] = sum(n) + host_counter;
    return 0;
}
