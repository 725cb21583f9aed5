#ifndef SEVERAL_H
#define SEVERAL_H

#include <stddef.h>
#include <stdint.h>

#define SEVERAL_ROOM 60

struct list {
    size_t count;
    uint64_t values[SEVERAL_ROOM];
};

extern uint64_t list_inserted;
extern const char text_digits[];

void list_insert(struct list *list, uint64_t value);
char *text_of(uint64_t value, char *end);

#endif
