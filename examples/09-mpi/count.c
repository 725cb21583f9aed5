/* Counts random keys in a table that is spread over the ranks. MPI carries what is regular: addresses, sums, barriers. What is
 * irregular, a key that belongs to another rank, is an ifunc: it walks through the rank's table there.
 *
 *     mpirun -n RANKS count [shm|ucx] [KEYS_OF_A_RANK] */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ifunc_rt.h>
#include <mpi.h>

#include "table.h"

#define ROUNDS 10
#define ADDRESS_SIZE 256

static int rank, ranks;
static struct table table;

static void must(ifunc_status status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "rank %d: %s: %s\n", rank, what, ifunc_rt_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Key number `n` of a rank: small ones are frequent. */
static uint64_t key_of(int of, uint64_t n)
{
    uint64_t bits = scrambled((uint64_t)of << 40 | n);

    return (bits >> 48) % (1 + (bits & 0xffff) % (1 + (bits >> 16 & 0x3fff)));
}

static int owner_of(uint64_t key)
{
    return (int)(scrambled(key + 1) % (uint64_t)ranks);
}

static ifunc_target *listen_here(const char *transport)
{
    ifunc_target_options *options = ifunc_target_options_create();
    ifunc_target *target;
    char address[ADDRESS_SIZE];

    if (strcmp(transport, "ucx") == 0) {
        snprintf(address, sizeof address, "ucx://127.0.0.1:0");
        /* UCX knows no users: every process that reaches the address is trusted with this one, as it is over MPI. */
        must(ifunc_target_options_accept_code_of_every_peer(options), "accept_code");
    } else {
        /* The name is free on this host: it contains the number of the process. */
        snprintf(address, sizeof address, "shm:mpi-%ld", (long)getpid());
        must(ifunc_target_options_accept_code(options), "accept_code");
    }
    must(ifunc_target_listen(address, options, &target), address);
    ifunc_target_options_destroy(options);
    return target;
}

/* All ranks become nodes of a group, and each gets a link to each. */
static void join(ifunc_target *target)
{
    char mine[ADDRESS_SIZE] = "", *all = malloc((size_t)ranks * ADDRESS_SIZE);
    ifunc_group *group;
    int n;

    require(all != NULL && strlen(ifunc_target_address(target)) < sizeof mine, "the addresses");
    strcpy(mine, ifunc_target_address(target));
    MPI_Allgather(mine, ADDRESS_SIZE, MPI_CHAR, all, ADDRESS_SIZE, MPI_CHAR, MPI_COMM_WORLD);
    must(ifunc_group_create((uint32_t)rank, &group), "ifunc_group_create");
    for (n = 0; n < ranks; n++)
        if (n != rank)
            must(ifunc_group_add_node(group, (uint32_t)n, all + n * ADDRESS_SIZE), "ifunc_group_add_node");
    must(ifunc_target_join(target, group), "ifunc_target_join");
    ifunc_group_destroy(group);
    free(all);
}

/* Runs what other ranks send, while the main thread computes and uses MPI. */
static void *serve(void *target)
{
    must(ifunc_target_serve(target, &table), "ifunc_target_serve");
    return NULL;
}

/* The same computation by one rank alone. */
static void compare(const struct tour *found, uint64_t keys)
{
    struct table *whole = calloc((size_t)ranks, sizeof *whole);
    struct tour expected = {.ranks = (uint32_t)ranks};
    uint64_t n;
    int of;

    require(whole != NULL, "no memory");
    for (of = 0; of < ranks; of++)
        for (n = 0; n < keys; n++) {
            uint64_t key = key_of(of, n);

            count_key(&whole[owner_of(key)], key);
        }
    for (of = 0; of < ranks; of++)
        visit(&expected, &whole[of]);
    require(memcmp(found, &expected, sizeof expected) == 0, "the result differs from that of a sequential computation");
    for (n = 0; n < SLOTS; n++)
        require(table.slot[n].count == 0 || owner_of(table.slot[n].key) == rank, "a key is in the wrong table");
    free(whole);
}

int main(int argc, char **argv)
{
    const char *transport = argc > 1 ? argv[1] : "shm";
    uint64_t keys = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000, sent = 0, sent_by_all = 0, n;
    struct tour tour = {0};
    ifunc_target *target;
    ifunc_source **to;
    ifunc_handle **tally, *top, *plain;
    pthread_t server;
    size_t length = 0;
    int provided, round, r;

    /* Only this thread calls MPI. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    require(provided >= MPI_THREAD_FUNNELED && ranks > 1, "two ranks or more");

    target = listen_here(transport);
    join(target);
    to = calloc((size_t)ranks, sizeof *to);
    tally = calloc((size_t)ranks, sizeof *tally);
    require(to != NULL && tally != NULL, "no memory");
    for (r = 0; r < ranks; r++)
        if (r != rank)
            must(ifunc_target_node_source(target, (uint32_t)r, &to[r]), "ifunc_target_node_source");
    require(pthread_create(&server, NULL, serve, target) == 0, "pthread_create");
    /* Own keys, too, are counted by the thread that has the table. */
    must(ifunc_source_connect(ifunc_target_address(target), NULL, &to[rank]), "ifunc_source_connect");
    for (r = 0; r < ranks; r++) {
        must(ifunc_source_load(to[r], "tally_key", &plain), "tally_key");
        /* Many small messages share a frame. */
        must(ifunc_handle_aggregated(plain, &tally[r]), "ifunc_handle_aggregated");
        ifunc_handle_destroy(plain);
    }

    for (round = 0; round < ROUNDS; round++) {
        for (n = keys * (uint64_t)round / ROUNDS; n < keys * (uint64_t)(round + 1) / ROUNDS; n++) {
            uint64_t key = key_of(rank, n);
            int owner = owner_of(key);

            must(ifunc_handle_send(tally[owner], &key, sizeof key), "tally_key");
            sent++;
        }
        /* MPI beside it: how far all of them are. */
        MPI_Allreduce(&sent, &sent_by_all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    }
    for (r = 0; r < ranks; r++)
        must(ifunc_source_flush(to[r]), "ifunc_source_flush");
    MPI_Barrier(MPI_COMM_WORLD);

    if (rank == 0) {
        /* From rank 1 to the last one, and at the end to rank 0, which answers. */
        tour.ranks = (uint32_t)ranks;
        must(ifunc_source_load(to[1], "tour_top", &top), "tour_top");
        must(ifunc_handle_call_wait(top, &tour, sizeof tour, &tour, sizeof tour, &length), "tour_top");
        require(length == sizeof tour, "an answer of another size");
        ifunc_handle_destroy(top);
        for (n = 0; n < 3; n++)
            printf("key %llu: %llu times\n", (unsigned long long)tour.best[n].key,
                   (unsigned long long)tour.best[n].count);
        compare(&tour, keys);
        printf("checked: %llu keys of %d ranks, %llu different ones, are those of a sequential computation\n",
               (unsigned long long)sent_by_all, ranks, (unsigned long long)tour.keys);
    }
    MPI_Barrier(MPI_COMM_WORLD);

    for (r = 0; r < ranks; r++) {
        ifunc_handle_destroy(tally[r]);
        ifunc_source_destroy(to[r]);
    }
    ifunc_target_stop(target);
    require(pthread_join(server, NULL) == 0, "pthread_join");
    must(ifunc_target_destroy(target), "ifunc_target_destroy");
    free(to);
    free(tally);
    MPI_Finalize();
    return 0;
}
