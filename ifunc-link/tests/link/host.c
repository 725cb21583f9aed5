/* What the "target" of these tests provides. Both the image and the same code as a shared library use it. */
#include <stdint.h>

uint64_t host_table[8] = {11, 22, 33, 44, 55, 66, 77, 88};
uint64_t host_counter = 5;
uint64_t host_add(uint64_t a, uint64_t b) { return a + b; }
uint64_t host_mul(uint64_t a, uint64_t b) { return a * b; }
uint64_t host_many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, double h)
{
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + (uint64_t)(8 * h);
}
uint64_t host_apply(uint64_t (*f)(uint64_t), uint64_t x) { return f(x); }
#define N(i) uint64_t host_n##i(uint64_t x) { return x * (i + 1) + i; }
N(0) N(1) N(2) N(3) N(4) N(5) N(6) N(7) N(8) N(9) N(10) N(11) N(12) N(13) N(14) N(15) N(16) N(17) N(18) N(19)
N(20) N(21) N(22) N(23) N(24) N(25) N(26) N(27) N(28) N(29) N(30) N(31) N(32) N(33) N(34) N(35) N(36) N(37)
