/*
 * ahead.c - ranks of the clients in each round, and when a client's turn comes.
 *
 * Invariant: whom a round asks follows from (seed, round, client index) alone, so what was found
 * out about a round stays true.
 */
#include "ahead.h"

#include "task/task.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Ranks that may be worked out for the rounds ahead, and the most of these rounds. */
#define GUESS_STEPS 200000u
#define MOST_AHEAD 1024u

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t dunlin__server_rank(uint64_t seed, uint64_t round, uint64_t client_index)
{
    return mix(mix(mix(seed) ^ round) ^ client_index);
}

uint64_t dunlin__server_work_seed(uint64_t seed, uint64_t round, uint64_t client_index)
{
    return mix(dunlin__server_rank(seed, round, client_index) ^ 0x776f726b); /* "work" */
}

static bool is_before(const dunlin__ranked *a, const dunlin__ranked *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->client_index < b->client_index);
}

static int compare_ranks(const void *left, const void *right)
{
    return is_before(left, right) ? -1 : is_before(right, left) ? 1 : 0;
}

dunlin_status dunlin__server_last_asked(const dunlin__server *server, uint64_t round,
                                        dunlin__ranked *out_last, dunlin_error *error)
{
    uint32_t n_clients = server->task.n_clients;
    dunlin__ranked *ranks = dunlin__alloc_array(&server->alloc, n_clients, sizeof *ranks);
    if (ranks == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "the ranks of %" PRIu32 " clients",
                            n_clients);
    }
    for (uint32_t i = 0; i < n_clients; i++) {
        ranks[i].client_index = i;
        ranks[i].rank = dunlin__server_rank(server->task.seed, round, i);
    }
    qsort(ranks, n_clients, sizeof *ranks, compare_ranks);
    *out_last = ranks[dunlin__server_task_n_select(&server->task) - 1];
    dunlin__free_array(&server->alloc, ranks, n_clients, sizeof *ranks);
    return DUNLIN_OK;
}

bool dunlin__server_is_asked(const dunlin__server *server, uint64_t round, uint64_t client_index,
                             const dunlin__ranked *last)
{
    const dunlin__ranked own = {.rank = dunlin__server_rank(server->task.seed, round, client_index),
                                .client_index = (uint32_t)client_index};
    return !is_before(last, &own);
}

void dunlin__ahead_free(dunlin__server *server)
{
    dunlin__ahead *ahead = &server->ahead;
    dunlin__free_array(&server->alloc, ahead->rounds, ahead->n, sizeof *ahead->rounds);
    dunlin__free_array(&server->alloc, ahead->last, ahead->n, sizeof *ahead->last);
    memset(ahead, 0, sizeof *ahead);
}

static bool make_room(dunlin__server *server)
{
    dunlin__ahead *ahead = &server->ahead;
    if (ahead->n > 0) {
        return true;
    }
    size_t n = GUESS_STEPS / server->task.n_clients + 1;
    ahead->n = n < MOST_AHEAD ? n : MOST_AHEAD;
    ahead->rounds = dunlin__alloc_zeroed(&server->alloc, ahead->n, sizeof *ahead->rounds);
    ahead->last = dunlin__alloc_zeroed(&server->alloc, ahead->n, sizeof *ahead->last);
    if (ahead->rounds == NULL || ahead->last == NULL) {
        dunlin__ahead_free(server);
        return false;
    }
    return true;
}

/* Whether a round to come asks a client; true when there is no memory to find out. */
static bool is_asked_in(dunlin__server *server, uint64_t round, uint64_t client_index)
{
    dunlin__ahead *ahead = &server->ahead;
    size_t slot = (size_t)(round % ahead->n);
    if (ahead->rounds[slot] != round) {
        if (dunlin__server_last_asked(server, round, &ahead->last[slot], NULL) != DUNLIN_OK) {
            return true;
        }
        ahead->rounds[slot] = round;
    }
    return dunlin__server_is_asked(server, round, client_index, &ahead->last[slot]);
}

uint64_t dunlin__server_rounds_ahead(dunlin__server *server, uint64_t client_index)
{
    uint64_t n_ahead = 1;
    if (!make_room(server)) {
        return n_ahead;
    }
    uint64_t round = server->round.round;
    while (n_ahead < server->ahead.n && round + n_ahead <= server->task.rounds &&
           !is_asked_in(server, round + n_ahead, client_index)) {
        n_ahead++;
    }
    return n_ahead;
}
