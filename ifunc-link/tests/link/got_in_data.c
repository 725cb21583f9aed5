//#Machines: x86-64
//#ExpectImports: host_counter host_table
//#Covers: R_X86_64_GOTPCREL | data | import | GOT entry
//#Covers: R_X86_64_GOTPCREL | data | image | GOT entry
//#Covers: R_X86_64_PC32 | data | image | distance
// Distances to entries of the GOT in data, as tables of relative pointers have them. What stands before one looks like an
// instruction, and is none.
#include "ifunc.h"
static NOINLINE uint64_t seven(void) { return 7; }
__attribute__((visibility("hidden"))) uint64_t own_value = 77;
__asm__(".section .rodata.table,\"a\",@progbits\n.balign 4\n.globl relative_table\n"
        "relative_table: .long host_table@GOTPCREL\n.long host_counter@GOTPCREL+4\n.long own_value@GOTPCREL\n"
        ".long own_value-relative_table\n.byte 0,0,0xff,0x15\n.long host_counter@GOTPCREL-4\n.text\n");
extern const __attribute__((visibility("hidden"))) int32_t relative_table[6];
static const int32_t *volatile table = relative_table;
ENTRY(got_in_data)
{
    const int32_t *t = table;
    out[0] = **(uint64_t *const *)((const char *)&t[0] + t[0]);
    out[1] = **(uint64_t *const *)((const char *)&t[1] + t[1] - 4);
    out[2] = **(uint64_t *const *)((const char *)&t[2] + t[2]);
    out[3] = *(const uint64_t *)((const char *)t + t[3]);
    out[4] = (uint32_t)t[4];
    out[5] = **(uint64_t *const *)((const char *)&t[5] + t[5] + 4) + seven();
    return 0;
}
