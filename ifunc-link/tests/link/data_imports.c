//#ExpectImports: host_add host_mul host_table
//#ExpectImportRelocations: yes
//#ExpectUnknown: host_add host_mul host_table
//#Covers: R_X86_64_64 | data | import | install relocation
//#Covers: R_X86_64_GOTPCREL | mov r64, [rip] | import | stub
//#Covers: R_X86_64_REX_GOTPCRELX | mov r64, [rip] | import | stub
// Static data that holds addresses of imports, with addends.
#include "ifunc.h"
typedef uint64_t (*op)(uint64_t, uint64_t);
struct entry { const char *name; op f; const uint64_t *where; };
static const struct entry entries[] = {{"add", host_add, &host_table[2]}, {"mul", host_mul, &host_table[7]}};
static const struct entry *volatile cursor = entries;
static uint64_t *volatile middle = &host_table[4];
ENTRY(data_imports)
{
    for (int i = 0; i < 2; i++) {
        const struct entry *e = cursor + i;
        out[3 * i] = e->f(payload[i], 9);
        out[3 * i + 1] = *e->where;
        out[3 * i + 2] = (uint64_t)e->name[1];
    }
    out[6] = middle[-1] + middle[0];
    out[7] = host_table[1] + (uint64_t)(&host_table[3] == middle - 1);
    return 0;
}
