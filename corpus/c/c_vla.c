/* features: arrays of variable length; alloca */
#include "corpus.h"
#include <alloca.h>

NOINLINE static uint64_t matrix(size_t rows, size_t columns, const uint8_t *in, size_t n)
{
    uint32_t cells[rows][columns];
    uint64_t sum = 0;

    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            cells[r][c] = (uint32_t)(n ? in[(r * 7 + c) % n] : 1) + (uint32_t)(r ^ c);
    for (size_t c = 0; c < columns; c++)
        for (size_t r = 0; r < rows; r++)
            sum = sum * 31 + cells[r][c];
    return sum + sizeof cells;
}

CASE(c_vla)
{
    char **lines = alloca((n % 9 + 1) * sizeof *lines);

    for (size_t i = 0; i <= n % 9; i++) {
        lines[i] = alloca(i + 2);
        memset(lines[i], 'a' + (int)i, i + 1);
        lines[i][i + 1] = 0;
        put(w, matrix(i + 1, (n + i) % 50 + 1, in, n));
    }
    for (size_t i = 0; i <= n % 9; i++)
        put_text(w, lines[n % 9 - i]);
}
