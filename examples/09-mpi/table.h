/* What the ranks and their ifuncs share: a rank's part of a table that counts keys. */
#ifndef TABLE_H
#define TABLE_H

#include <stdint.h>

/* Slots of a rank: a power of two. */
#define SLOTS (UINT64_C(1) << 16)
/* How many of the most frequent keys a tour collects. */
#define TOP 10

struct counted {
    uint64_t key;
    /* 0: the slot is free. */
    uint64_t count;
};

struct table {
    uint64_t used;
    /* Keys that found no free slot. */
    uint64_t lost;
    struct counted slot[SLOTS];
};

/* The payload and the answer of `tour_top`. */
struct tour {
    uint32_t ranks;
    uint32_t visited;
    /* Different keys of all tables. */
    uint64_t keys;
    uint64_t lost;
    /* In descending order. */
    struct counted best[TOP];
};

/* Bits that depend on all bits of the key. */
static inline uint64_t scrambled(uint64_t key)
{
    key ^= key >> 33;
    key *= UINT64_C(0xff51afd7ed558ccd);
    key ^= key >> 33;
    key *= UINT64_C(0xc4ceb9fe1a85ec53);
    return key ^ key >> 33;
}

/* Linear probing: what no remote memory access of MPI can do in one message. */
static inline void count_key(struct table *table, uint64_t key)
{
    uint64_t n, at = scrambled(key);

    for (n = 0; n < SLOTS; n++) {
        struct counted *slot = &table->slot[(at + n) % SLOTS];

        if (slot->count == 0) {
            slot->key = key;
            table->used++;
        }
        if (slot->key == key) {
            slot->count++;
            return;
        }
    }
    table->lost++;
}

/* Puts a key among the best if it belongs there; of equal counts the lesser key is first. */
static inline void consider(struct tour *tour, const struct counted *counted)
{
    uint32_t at = TOP;

    while (at > 0 && (counted->count > tour->best[at - 1].count
                      || (counted->count == tour->best[at - 1].count && counted->key < tour->best[at - 1].key))) {
        if (at < TOP)
            tour->best[at] = tour->best[at - 1];
        at--;
    }
    if (at < TOP)
        tour->best[at] = *counted;
}

/* Adds a table to a tour. */
static inline void visit(struct tour *tour, const struct table *table)
{
    uint64_t n;

    for (n = 0; n < SLOTS; n++)
        if (table->slot[n].count != 0)
            consider(tour, &table->slot[n]);
    tour->keys += table->used;
    tour->lost += table->lost;
    tour->visited++;
}

#endif
