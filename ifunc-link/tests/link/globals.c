//#ExpectImports:
//#ExpectRw: yes
//#Covers: R_X86_64_PC32 | lea r64, [rip] | image | distance by clang
//#Covers: R_X86_64_PC32 | mov r64, [rip] | image | distance
//#Covers: R_X86_64_PC32 | mov [rip], r64 | image | distance
//#Covers: R_X86_64_GOTPCREL | mov r64, [rip] | image | distance
//#Covers: R_X86_64_REX_GOTPCRELX | mov r64, [rip] | image | distance
//#Covers: R_AARCH64_ADR_PREL_PG_HI21 | adrp | image | distance
//#Covers: R_AARCH64_ADD_ABS_LO12_NC | add | image | distance
//#Covers: R_AARCH64_LDST64_ABS_LO12_NC | ldr, str | image | distance
//#Covers: R_AARCH64_ADR_GOT_PAGE | adrp | image | distance
//#Covers: R_AARCH64_LD64_GOT_LO12_NC | ldr, str | image | distance
// Data and zeroed data, private and public, of several alignments.
#include "ifunc.h"
static uint64_t counter = 7;
uint64_t public_counter = 100;
static uint8_t zeroed[5000];
uint32_t public_zeroed[16];
static struct { uint8_t a; uint64_t b; } __attribute__((aligned(64))) aligned = {1, 2};
static uint64_t *volatile self = &public_counter;
ENTRY(globals)
{
    counter += n;
    public_counter += counter;
    zeroed[4999] += payload[0];
    public_zeroed[n % 16]++;
    aligned.b += 3;
    *self += 1;
    __atomic_fetch_add(&counter, 5, __ATOMIC_SEQ_CST);
    out[0] = counter;
    out[1] = public_counter;
    out[2] = zeroed[4999] + zeroed[0];
    out[3] = public_zeroed[n % 16];
    out[4] = aligned.b;
    out[5] = (uintptr_t)&aligned % 64;
    out[6] = self == &public_counter;
    return 0;
}
