/* features: recursion; deep recursion */
#include "corpus.h"

static uint64_t count(const uint8_t *board, int row, int size)
{
    uint64_t ways = 0;
    uint8_t next[8];

    if (row == size)
        return 1;
    memcpy(next, board, 8);
    for (int column = 0; column < size; column++) {
        int free = 1;
        for (int above = 0; above < row; above++)
            free &= board[above] != column && board[above] + (row - above) != column
                && board[above] != column + (row - above);
        next[row] = (uint8_t)column;
        if (free)
            ways += count(next, row + 1, size);
    }
    return ways;
}

NOINLINE static uint64_t deep(uint64_t depth, uint64_t value)
{
    volatile uint64_t kept = value ^ depth;
    return depth ? deep(depth - 1, value * 3 + kept) + kept : kept;
}

CASE(c_recursion)
{
    uint8_t board[8] = {0};

    put(w, count(board, 0, (int)(n % 4) + 4));
    put(w, deep(n % 20000, w->seed));
    put(w, deep(n ? in[0] : 3, n));
}
