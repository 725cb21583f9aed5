#include "several.h"

uint64_t list_inserted;

void list_insert(struct list *list, uint64_t value)
{
    size_t at = list->count++;

    if (at == 0)
        list_inserted = 0;
    while (at > 0 && list->values[at - 1] > value) {
        list->values[at] = list->values[at - 1];
        at--;
    }
    list->values[at] = value;
    list_inserted++;
}
