/* features: qsort and bsearch with a comparator of the ifunc's */
#include "corpus.h"
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

CASE(c_qsort)
{
    uint64_t numbers[200], *found;
    const char *texts[] = {"pear", "apple", "fig", "quince", "cherry", "plum", "apricot"};
    size_t count = words(n) < 200 ? words(n) : 200;

    for (size_t i = 0; i < count; i++)
        numbers[i] = word(in, n, i) ^ w->seed;
    qsort(numbers, count, sizeof *numbers, by_value);
    for (size_t i = 0; i < count; i++)
        put(w, numbers[i]);
    if (count) {
        uint64_t wanted = word(in, n, count / 2) ^ w->seed;
        found = bsearch(&wanted, numbers, count, sizeof *numbers, by_value);
        put(w, found ? *found : 0);
    }
    texts[n % 7] = "zebra";
    qsort(texts, 7, sizeof *texts, by_text);
    for (size_t i = 0; i < 7; i++)
        put_text(w, texts[i]);
}
