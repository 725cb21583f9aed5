#include "host.h"

#include <stdarg.h>

uint64_t host_table[8] = {2, 3, 5, 7, 11, 13, 17, 19};
uint64_t host_counter = 100;
const char *const host_names[4] = {"north", "east", "south", "west"};

uint64_t host_add(uint64_t a, uint64_t b) { return a + b; }
uint64_t host_mul(uint64_t a, uint64_t b) { return a * b + 1; }

uint64_t host_many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, double h)
{
    return a ^ b << 1 ^ c << 2 ^ d << 3 ^ e << 4 ^ f << 5 ^ g << 6 ^ (uint64_t)(int64_t)h;
}

uint64_t host_variadic(int count, ...)
{
    va_list arguments;
    uint64_t sum = 0;

    va_start(arguments, count);
    while (count-- > 0)
        sum = sum * 31 + va_arg(arguments, uint64_t);
    va_end(arguments);
    return sum;
}

void host_each(void (*visit)(void *state, uint64_t value), void *state)
{
    for (int i = 0; i < 8; i++)
        visit(state, host_table[i]);
}

uint64_t host_apply(uint64_t (*function)(uint64_t, uint64_t), uint64_t a, uint64_t b) { return function(a, b); }

struct pair host_pair(uint64_t a)
{
    struct pair pair = {a * 3, a + 5};
    return pair;
}

struct wide host_wide(struct wide by, uint64_t a)
{
    for (int i = 0; i < 6; i++)
        by.words[i] = by.words[i] * a + (uint64_t)i;
    return by;
}

double host_mean(double a, double b) { return (a + b) / 2; }
