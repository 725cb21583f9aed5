/* The host of the C cases: the target and the driver both open the library built from `host.c`. */
#ifndef HOST_H
#define HOST_H

#include <stdint.h>

struct pair {
    uint64_t a, b;
};

struct wide {
    uint64_t words[6];
};

extern uint64_t host_table[8];
extern uint64_t host_counter;
extern const char *const host_names[4];

uint64_t host_add(uint64_t a, uint64_t b);
uint64_t host_mul(uint64_t a, uint64_t b);
/* More arguments than argument registers. */
uint64_t host_many(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, double h);
uint64_t host_variadic(int count, ...);
/* Calls `visit` with `state` for each entry of `host_table`. */
void host_each(void (*visit)(void *state, uint64_t value), void *state);
uint64_t host_apply(uint64_t (*function)(uint64_t, uint64_t), uint64_t a, uint64_t b);
struct pair host_pair(uint64_t a);
struct wide host_wide(struct wide by, uint64_t a);
double host_mean(double a, double b);

#endif
