//#ExpectImports: strlen
//#MaxBytes: 2200
// Strings of which most are never used, some are there twice, and one is wide.
#include "ifunc.h"
#include <string.h>
#include <wchar.h>
static const char *const names[] = {"alpha", "beta", "gamma", "alpha", ""};
static const wchar_t *const wide = L"wide string";
const char *unused(int k)
{
    return k ? "a long string that only the unused function mentions, so that it must not travel: 0123456789" : "b";
}
static NOINLINE size_t length(const char *s) { return strlen(s); }
ENTRY(strings)
{
    out[0] = length(names[payload[0] % 5]);
    out[1] = (uint64_t)names[payload[1] % 5][0];
    out[2] = length("gamma") + length("tail of a string");
    out[3] = (uint64_t)wide[payload[2] % 11];
    out[4] = (uint64_t)names[0][4] + (uint64_t)names[3][0];
    return 0;
}
