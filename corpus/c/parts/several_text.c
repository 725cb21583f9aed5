#include "several.h"

const char text_digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";

char *text_of(uint64_t value, char *line)
{
    char *end = line + 63;

    *end = 0;
    do
        *--end = text_digits[value % 36];
    while (value /= 36);
    return end;
}
