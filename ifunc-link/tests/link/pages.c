//#Machines: aarch64
//#ExpectImports: host_counter host_table
//#ExpectRw: yes
//#Covers: R_AARCH64_LDST8_ABS_LO12_NC | ldr, str | image | distance
//#Covers: R_AARCH64_LDST16_ABS_LO12_NC | ldr, str | image | distance
//#Covers: R_AARCH64_LDST32_ABS_LO12_NC | ldr, str | image | distance
//#Covers: R_AARCH64_LDST64_ABS_LO12_NC | ldr, str | image | distance
//#Covers: R_AARCH64_LDST128_ABS_LO12_NC | ldr, str | image | distance
//#Covers: R_AARCH64_ADR_PREL_LO21 | adr | image | distance
//#Covers: R_AARCH64_LD_PREL_LO19 | ldr literal | image | distance
//#Covers: R_AARCH64_ADR_PREL_PG_HI21_NC | adrp | image | distance
//#Covers: R_AARCH64_GOT_LD_PREL19 | ldr literal | import | GOT entry
//#Covers: R_AARCH64_GOT_LD_PREL19 | ldr literal | image | distance
//#Covers: R_AARCH64_PREL32 | data | image | distance
//#Covers: R_AARCH64_PREL64 | data | image | distance
// Loads and stores of every width, vectors, `adr`, literals, distances in data, and a table far from the start of its page.
#include "ifunc.h"
#define LOAD(width, register, s) "adrp x2," s "\nldr" width " " register ",[x2,:lo12:" s "]\n"
__asm__(".section .data.widths,\"aw\",@progbits\n.balign 16\n.space 4080\n.globl widths\n.hidden widths\n"
        "widths: .byte 1,2,3,4,5,6,7,0x88,9,10,11,12,13,14,0xf5,16\n"
        "behind: .quad 0x1122334455667788,0x99aabbccddeeff00\n"
        ".section .rodata.distances,\"a\",@progbits\n.balign 8\n.globl distances\n"
        "distances: .quad widths-.\n.word loads-.\n.word distances_end-distances\n.word widths-distances\n"
        "distances_end: .word 0\n"
        ".section .rodata.literal,\"a\",@progbits\n.balign 8\nliteral: .quad 0x0123456789abcdef\n"
        ".section .text.loads,\"ax\",@progbits\n.globl loads\n.hidden loads\n.type loads,%function\nloads:\n"
        LOAD("b", "w3", "widths+7") "str x3,[x0]\n"
        LOAD("sb", "x3", "widths+7") "str x3,[x0,#8]\n"
        LOAD("h", "w3", "widths+6") "str x3,[x0,#16]\n"
        LOAD("", "w3", "widths+4") "str x3,[x0,#24]\n"
        LOAD("sw", "x3", "widths+12") "str x3,[x0,#32]\n"
        LOAD("", "x3", "widths+8") "str x3,[x0,#40]\n"
        LOAD("", "q3", "behind") "str q3,[x0,#48]\n"
        LOAD("", "d3", "behind+8") "str d3,[x0,#64]\n"
        "adrp x2,:pg_hi21_nc:behind\nstr x1,[x2,:lo12:behind]\n"
        LOAD("", "x3", "behind") "str x3,[x0,#72]\n"
        "adr x2,literal\nldr x3,[x2]\nstr x3,[x0,#80]\n"
        "ldr x3,literal\nstr x3,[x0,#88]\n"
        "ldr w3,literal\nstr x3,[x0,#96]\n"
        "ldr x3,:got:host_table\nldr x3,[x3,#8]\nstr x3,[x0,#104]\n"
        "ldr x3,:got:widths\nldr x3,[x3]\nstr x3,[x0,#112]\n"
        "ret\n.size loads,.-loads\n.text\n");
void loads(uint64_t *out, uint64_t value);
extern const __attribute__((visibility("hidden"))) uint32_t distances[6];
extern __attribute__((visibility("hidden"))) uint8_t widths[];
ENTRY(pages)
{
    loads(out, n * 0x0101);
    const char *at = (const char *)distances;
    out[15] = at + *(const int64_t *)at == (char *)widths;
    out[16] = at + 8 + (int32_t)distances[2] == (char *)loads;
    out[17] = distances[3];
    // Modulo what a reference that is linked otherwise has.
    out[18] = at + (int32_t)distances[4] - 16 == (char *)widths;
    out[19] = host_counter;
    return 0;
}
