/*
 * swap.c - the policies that may write tensors out to a file and read them back.
 *
 * Invariant: a tensor is written out once, after its last use of the forward pass, and read back
 * before its first use of the backward pass, while nothing else runs: no time of the file is
 * hidden. What is dropped instead is recomputed from what is there, or from what is read back for
 * it.
 * Sources: "vdnn": Rhu et al., "vDNN", MICRO 2016, the static policy for convolutions; "capuchin":
 * Peng et al., "Capuchin", ASPLOS 2020, its hybrid policy.
 */
#include "policy.h"

#include <mem/support.h>

#include <stdlib.h>
#include <string.h>

#define TARGET_STEPS 64 /* targets for live bytes, from the room down to a third of it */

/* --- vdnn --- */

static dunlin_status try_all(dunlin_planner *planner, uint64_t batch, dunlin_attempt *out_attempt,
                             dunlin_error *error)
{
    const dunlin_remat *remat = &planner->at->remat;
    memset(planner->at->intervals, DUNLIN_INTERVAL_RETAIN, remat->n_intervals);
    for (uint32_t r = 0; r < remat->n_roots; r++) {
        if (remat->roots[r].swap_interval != DUNLIN_MEM_NONE) {
            planner->at->intervals[remat->roots[r].swap_interval] = DUNLIN_INTERVAL_SWAP;
        }
    }
    return dunlin__try_intervals(planner, batch, out_attempt, error);
}

/* --- capuchin --- */

/* A tensor that may be swapped out between the passes, and the time in which no op uses it. */
typedef struct {
    uint32_t interval;
    uint64_t free_ns;
} candidate;

/* The longest free time first, of equals the earlier interval. */
static int compare(const void *left, const void *right)
{
    const candidate *a = left;
    const candidate *b = right;
    return a->free_ns != b->free_ns ? (a->free_ns < b->free_ns) - (a->free_ns > b->free_ns)
                                    : (a->interval > b->interval) - (a->interval < b->interval);
}

static uint64_t swap_ns(const dunlin_remat *remat, uint32_t interval)
{
    const dunlin_remat_root *root = &remat->roots[remat->intervals[interval].root];
    return root->swap_interval != interval ? UINT64_MAX
                                           : dunlin__remat_swap_ns(remat, root->swap_out) +
                                                 dunlin__remat_swap_ns(remat, root->swap_out + 1);
}

static uint32_t list_candidates(const dunlin_planner *planner, candidate *out)
{
    const dunlin_remat *remat = &planner->at->remat;
    uint32_t n = 0;
    for (uint32_t g = 0; g < remat->n_intervals; g++) {
        const dunlin_interval *interval = &remat->intervals[g];
        if (planner->graph->ops[remat->steps[interval->from].op].is_backward ||
            !planner->graph->ops[remat->steps[interval->to].op].is_backward) {
            continue;
        }
        uint64_t ns = 0;
        for (uint32_t p = interval->from + 1; p < interval->to; p++) {
            ns += remat->steps[p].cost_ns;
        }
        out[n++] = (candidate){.interval = g, .free_ns = ns};
    }
    qsort(out, n, sizeof *out, compare);
    return n;
}

static bool is_valid(dunlin_planner *planner)
{
    return dunlin__remat_run(&planner->at->remat, planner->at->intervals, UINT64_MAX).is_valid;
}

/* Swaps it or recomputes it, whichever takes less; false: neither can be done. */
static bool let_go(dunlin_planner *planner, uint32_t interval)
{
    dunlin_remat *remat = &planner->at->remat;
    const uint64_t io_ns = swap_ns(remat, interval);
    dunlin__remat_stand(remat, planner->at->intervals, remat->intervals[interval].to);
    const bool is_cheaper =
        dunlin__remat_recompute_cost(remat, remat->intervals[interval].root) < io_ns;
    planner->at->intervals[interval] = is_cheaper ? DUNLIN_INTERVAL_LAZY : DUNLIN_INTERVAL_SWAP;
    if (is_valid(planner)) {
        return true;
    }
    planner->at->intervals[interval] = is_cheaper ? DUNLIN_INTERVAL_SWAP : DUNLIN_INTERVAL_LAZY;
    if (planner->at->intervals[interval] == DUNLIN_INTERVAL_LAZY || io_ns != UINT64_MAX) {
        if (is_valid(planner)) {
            return true;
        }
    }
    planner->at->intervals[interval] = DUNLIN_INTERVAL_RETAIN;
    return false;
}

/* Drops a tensor that is kept at a position, or swaps one that would be recomputed; false: there is
 * none left. */
static bool relieve(dunlin_planner *planner, const candidate *candidates, uint32_t n,
                    uint32_t position, uint8_t *is_pinned)
{
    for (int again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t g = candidates[i].interval;
            const dunlin_interval *interval = &planner->at->remat.intervals[g];
            if (interval->from > position || position > interval->to || is_pinned[g] != 0) {
                continue;
            }
            const bool is_between = interval->from < position && position < interval->to;
            if (again == 0 && is_between && planner->at->intervals[g] == DUNLIN_INTERVAL_RETAIN) {
                if (let_go(planner, g)) {
                    return true;
                }
                is_pinned[g] = 1;
            } else if (again == 1 && planner->at->intervals[g] == DUNLIN_INTERVAL_LAZY &&
                       swap_ns(&planner->at->remat, g) != UINT64_MAX) {
                planner->at->intervals[g] = DUNLIN_INTERVAL_SWAP;
                return true;
            }
        }
    }
    return false;
}

/* What a later choice brings back anyway, or makes cheap to recompute, need not be written out. */
static void settle(dunlin_planner *planner, const candidate *candidates, uint32_t n,
                   uint64_t target_bytes)
{
    dunlin_remat *remat = &planner->at->remat;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *state = &planner->at->intervals[candidates[i].interval];
        if (*state != DUNLIN_INTERVAL_SWAP) {
            continue;
        }
        const uint64_t before_ns =
            dunlin__remat_run(remat, planner->at->intervals, UINT64_MAX).cost_ns;
        *state = DUNLIN_INTERVAL_LAZY;
        const dunlin_remat_result again =
            dunlin__remat_run(remat, planner->at->intervals, UINT64_MAX);
        if (!again.is_valid || again.cost_ns > before_ns || again.peak_bytes > target_bytes) {
            *state = DUNLIN_INTERVAL_SWAP;
        }
    }
}

/* Tensors go, where live bytes are highest, until they are within the target. */
static bool choose(dunlin_planner *planner, const candidate *candidates, uint32_t n,
                   uint64_t target_bytes)
{
    uint8_t *is_pinned = planner->at->intervals + planner->at->remat.n_intervals;
    memset(planner->at->intervals, DUNLIN_INTERVAL_RETAIN,
           2 * (size_t)planner->at->remat.n_intervals);
    for (;;) {
        const dunlin_remat_result result =
            dunlin__remat_run(&planner->at->remat, planner->at->intervals, UINT64_MAX);
        if (result.peak_bytes <= target_bytes) {
            settle(planner, candidates, n, target_bytes);
            return true;
        }
        if (!relieve(planner, candidates, n, result.peak_at, is_pinned)) {
            return false;
        }
    }
}

/* The highest target whose packing fits. */
static dunlin_status try_hybrid(dunlin_planner *planner, uint64_t batch,
                                dunlin_attempt *out_attempt, dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    const size_t n_intervals = (size_t)planner->at->remat.n_intervals + 1;
    candidate *candidates = dunlin__alloc_array(alloc, n_intervals, sizeof *candidates);
    if (candidates == NULL) {
        return dunlin__planner_no_memory(planner, error);
    }
    const uint32_t n = list_candidates(planner, candidates);
    const uint64_t room = dunlin__planner_room(planner);
    dunlin_status status = DUNLIN_OK;
    for (uint64_t i = 0; i < TARGET_STEPS && status == DUNLIN_OK; i++) {
        if (!choose(planner, candidates, n, room - room / 96 * i)) {
            break;
        }
        status = dunlin__try_intervals(planner, batch, out_attempt, error);
        if (out_attempt->is_fitting) {
            break;
        }
    }
    dunlin__free_array(alloc, candidates, n_intervals, sizeof *candidates);
    return status;
}

dunlin_status dunlin__try_swaps(dunlin_planner *planner, dunlin_attempt *out_attempt,
                                dunlin_error *error)
{
    const uint64_t batch = planner->most_samples;
    DUNLIN_TRY(dunlin__try_slices(planner, batch, 0, out_attempt, error));
    if (!out_attempt->is_fitting && planner->options.batch == batch) {
        DUNLIN_TRY(dunlin__planner_keep(planner, out_attempt, error));
        DUNLIN_TRY(dunlin__planner_set_slice(planner, batch, error));
        DUNLIN_TRY(planner->options.policy == DUNLIN_PLAN_VDNN
                       ? try_all(planner, batch, out_attempt, error)
                       : try_hybrid(planner, batch, out_attempt, error));
    }
    return dunlin__planner_keep(planner, out_attempt, error);
}
