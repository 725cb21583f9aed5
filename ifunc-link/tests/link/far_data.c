//#Machines: aarch64
//#ExpectImports: host_add
//#ExpectRw: yes
// Data beyond what `adr` reaches: by the page, from a base at a multiple of it.
#include "ifunc.h"
static const uint8_t table[3 << 20] = {[1] = 1, [(3 << 20) - 1] = 2};
static uint64_t first = 1;
static uint8_t zeroed[5 << 20];
static uint64_t last[4] = {1, 2, 3, 4};
static NOINLINE uint64_t step(uint64_t x) { return host_add(x, first++); }
ENTRY(far_data)
{
    out[0] = table[n] + table[(3 << 20) - 1] + table[payload[0] % 2];
    zeroed[n] += payload[0];
    zeroed[(5 << 20) - 1] += 3;
    out[1] = zeroed[n] + zeroed[(5 << 20) - 1];
    out[2] = step(n) + last[n % 4]++;
    return 0;
}
