/*
 * judge.c - the test set, shared among the ranks of a run.
 *
 * Invariant: the figures are sums of the same pieces in the same order, whoever has judged which.
 */
#include "engine.h"

#include <common/progress.h>
#include <stdlib.h>
#include <string.h>

#define N_NUMBERS (sizeof(dunlin__figures) / sizeof(int64_t))

/* Every n-th piece; the first that failed, or n_pieces. */
static size_t judge_own(engine *all, size_t n_pieces, dunlin__figures *pieces, dunlin_error *error)
{
    for (size_t i = (size_t)ranks_index(all->ranks); i < n_pieces;
         i += (size_t)ranks_count(all->ranks)) {
        if (dunlin__memory_judge(&all->rounds, i, &pieces[i], error) != DUNLIN_OK) {
            return i;
        }
    }
    return n_pieces;
}

/* The failure of the lowest piece, on all ranks: the one that a single process would have had. */
static bool agree_on_failure(engine *all, size_t failed, size_t n_pieces, const dunlin_error *own,
                             dunlin_error *out_error)
{
    const int64_t lowest = -ranks_highest(all->ranks, -(int64_t)failed);
    if (lowest >= (int64_t)n_pieces) {
        return false;
    }
    const bool is_ours =
        (int64_t)failed == lowest && lowest % ranks_count(all->ranks) == ranks_index(all->ranks);
    const size_t n_own = is_ours ? sizeof *own : 0;
    (void)ranks_gather(all->ranks, own, n_own, out_error, sizeof *out_error);
    return true;
}

/* A number that one rank has and the others have as 0 is there on all of them, to the bit. */
static void share_pieces(engine *all, dunlin__figures *pieces, size_t n_pieces)
{
    int64_t *bits = calloc(n_pieces * N_NUMBERS, sizeof *bits);
    if (bits == NULL) {
        ranks_abort(all->ranks, EXIT_FAILED);
        return;
    }
    memcpy(bits, pieces, n_pieces * sizeof *pieces);
    ranks_sum(all->ranks, bits, n_pieces * N_NUMBERS);
    memcpy(pieces, bits, n_pieces * sizeof *pieces);
    free(bits);
}

void engine_judge(engine *all, bool is_aggregated, dunlin__memory_end *end)
{
    if (!dunlin__memory_judges(&all->rounds)) {
        return;
    }
    const double begun_ms = clock_ms();
    size_t n_pieces = 0;
    dunlin_error error = {0};
    const dunlin_status status =
        dunlin__memory_judge_begin(&all->rounds, is_aggregated, &n_pieces, &error);
    dunlin__figures *pieces = calloc(n_pieces, sizeof *pieces);
    if (pieces == NULL) {
        ranks_abort(all->ranks, EXIT_FAILED);
        return;
    }
    const size_t failed =
        status == DUNLIN_OK ? judge_own(all, n_pieces, pieces, &error) : (size_t)0;
    all->times.evaluation += (clock_ms() - begun_ms) / 1000.0 * all->n_threads;
    if (agree_on_failure(all, failed, n_pieces, &error, &end->failure)) {
        end->has_figures = true;
    } else {
        share_pieces(all, pieces, n_pieces);
        dunlin__memory_judge_end(pieces, n_pieces, end);
    }
    free(pieces);
}
