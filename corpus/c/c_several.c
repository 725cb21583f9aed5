/* with: parts/several_list.c parts/several_text.c */
/* features: several files with a header; both conventions */
#include "corpus.h"
#include "parts/several.h"

CASE_OF_OLD(c_several)
{
    struct list list = {0};
    char line[64];

    for (size_t i = 0; i < words(n) && i < SEVERAL_ROOM; i++)
        list_insert(&list, word(in, n, i));
    for (size_t i = 0; i < list.count; i++)
        put(w, list.values[i]);
    put(w, list_inserted);
    put_text(w, text_of(list.count ? list.values[0] : 7, line));
    put_text(w, text_digits);
}
