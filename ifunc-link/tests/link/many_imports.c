//#ExpectImport: host_n0
//#ExpectImport: host_n37
// Entries of the GOT beyond 127 bytes need longer displacements.
#include "ifunc.h"
#define ALL(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15) F(16) F(17) \
    F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29) F(30) F(31) F(32) F(33) F(34) F(35) \
    F(36) F(37)
#define DECLARE(i) uint64_t host_n##i(uint64_t);
#define CALL(i) out[i] = host_n##i(payload[i % n] + i);
#define TAKE(i) f = host_n##i; out[i] += f(3);
ALL(DECLARE)
ENTRY(many_imports)
{
    uint64_t (*volatile f)(uint64_t);
    ALL(CALL)
    ALL(TAKE)
    return 0;
}
