/*
 * attempt_redo.c - attempts on small steps, one recomputed op at a time (redo.h): search, then
 * packing.
 *
 * Invariant: a choice counts only once its schedule is laid out and packed.
 */
#include "attempt/attempt.h"
#include "redo.h"

#include <mem/support.h>

#include <string.h>

#define RUNS_AN_OP 640 /* simulations, in one search; */
#define GLANCE_RUNS 80 /* in one that shows whether that is worth it */
#define FAR_SHARE 10   /* what costs more than the best by one part in so many is not */
#define MAX_ROUNDS 4   /* of search and packing */
/*
 * Where memory is short, a search within one limit alone has much search noise. So it continues
 * from what is found at the next smaller grid points: limits that no budget changes, each one part
 * in so many below the one before. It does not where no more than one part in so many of the time
 * is lost.
 */
#define N_GRID_POINTS 2
#define GRID_POINT_SHARE 32
#define GRID_POINT_RUNS 160 /* for each op, in the search at one grid point */
#define LOSS_SHARE 16

/* What the best plan so far recomputes, where it is of the whole batch. */
static bool read_best(const dunlin_planner *planner, dunlin_recompute_choice *out_choice)
{
    const dunlin_schedule *kept = &planner->kept;
    uint32_t stage = 0;
    uint32_t first = 0; /* step after the first run before */
    memset(out_choice, 0, sizeof *out_choice);
    if (!planner->best.is_fitting || kept->n_loops != 1 ||
        planner->best.slice_samples < planner->options.batch) {
        return false;
    }
    for (uint32_t k = 0; k < kept->n_steps; k++) {
        if (kept->steps[k].op != stage) {
            continue;
        }
        for (; first < k; first++) {
            dunlin__recompute_add(&out_choice->before[stage], kept->steps[first].op);
        }
        first = k + 1;
        stage++;
    }
    return stage == planner->graph->n_ops;
}

/* Lays a choice out as it packs. */
static dunlin_status lay_out(dunlin_planner *planner, const dunlin_recompute_choice *choice,
                             dunlin_attempt *out_attempt, dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    const uint32_t n_ops = planner->graph->n_ops;
    dunlin_recompute *recompute =
        dunlin__alloc_array(alloc, DUNLIN_RECOMPUTE_STEPS, sizeof *recompute);
    if (recompute == NULL) {
        return dunlin__planner_no_memory(planner, error);
    }
    dunlin_recompute_list list = {.recompute = recompute};
    for (uint32_t stage = 0; stage < n_ops; stage++) {
        for (uint32_t op = 0; op < stage && list.n < DUNLIN_RECOMPUTE_STEPS; op++) {
            if (dunlin__recompute_has(&choice->before[stage], op)) {
                recompute[list.n++] = (dunlin_recompute){.before = stage, .op = op};
            }
        }
    }
    uint64_t bound = 0;
    uint32_t peak_step = 0;
    dunlin_status status = dunlin__planner_reserve_steps(planner, n_ops + list.n, error);
    if (status == DUNLIN_OK) {
        status = dunlin__planner_lay_out(planner, planner->options.batch, false, &list, &bound,
                                         &peak_step, error);
    }
    dunlin__free_array(alloc, recompute, DUNLIN_RECOMPUTE_STEPS, sizeof *recompute);
    if (status == DUNLIN_OK) {
        dunlin__planner_conclude(planner, planner->options.batch, bound,
                                 dunlin__planner_pack(planner, bound), out_attempt);
    }
    return status;
}

/* Where the best so far is cut into slices: is the whole batch far from it? */
static bool is_far(dunlin_planner *planner, dunlin_recompute_model *model, uint64_t limit)
{
    dunlin_recompute_choice choice = {.before = {{{0}}}};
    dunlin_recompute_result result;
    const uint64_t n_runs = (uint64_t)GLANCE_RUNS * model->n_ops;
    const uint64_t best_ns = planner->best.cost_ns;
    if (!planner->best.is_fitting) {
        return false;
    }
    const uint64_t plain_ns = dunlin__planner_plain_ns(planner, planner->options.batch);
    return !dunlin__recompute_search(model, limit, n_runs, &choice, &result) ||
           plain_ns + result.cost_ns > best_ns + best_ns / FAR_SHARE;
}

/* Searches at the grid points below the limit; `*choice` becomes the cheapest of what is found
 * there, if that is cheaper. */
static dunlin_status try_grid_points(dunlin_planner *planner, dunlin_recompute_model *model,
                                     uint64_t limit, dunlin_recompute_choice *choice,
                                     dunlin_error *error)
{
    const dunlin_recompute_choice none = {.before = {{{0}}}};
    const dunlin_recompute_result start = dunlin__recompute_run(model, choice, limit);
    const uint64_t ideal_ns = dunlin__planner_plain_ns(planner, planner->options.batch);
    uint64_t best_ns = start.excess_bytes == 0 ? start.cost_ns : UINT64_MAX;
    if (best_ns <= ideal_ns / LOSS_SHARE) {
        return DUNLIN_OK;
    }
    uint64_t grid_point = dunlin__recompute_run(model, &none, limit).peak_bytes;
    while (grid_point > limit) {
        grid_point -= grid_point / GRID_POINT_SHARE + 1;
    }
    for (uint32_t k = 0; k < N_GRID_POINTS; k++, grid_point -= grid_point / GRID_POINT_SHARE + 1) {
        dunlin_recompute_choice made = none;
        dunlin_recompute_result result;
        dunlin_attempt tried;
        const uint64_t n_runs = (uint64_t)GRID_POINT_RUNS * model->n_ops;
        if (!dunlin__recompute_search(model, grid_point, n_runs, &made, &result)) {
            continue;
        }
        DUNLIN_TRY(lay_out(planner, &made, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        if (result.cost_ns < best_ns) {
            best_ns = result.cost_ns;
            *choice = made;
        }
    }
    return DUNLIN_OK;
}

static dunlin_status search(dunlin_planner *planner, dunlin_recompute_model *model,
                            dunlin_error *error)
{
    dunlin_recompute_choice choice;
    uint64_t limit = dunlin__planner_room(planner);
    if (!read_best(planner, &choice) && is_far(planner, model, limit)) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(try_grid_points(planner, model, limit, &choice, error));
    for (uint32_t round = 0; round < MAX_ROUNDS; round++) {
        dunlin_recompute_result result;
        dunlin_attempt tried = {.is_fitting = false};
        const uint64_t n_runs = (uint64_t)RUNS_AN_OP * model->n_ops;
        if (!dunlin__recompute_search(model, limit, n_runs, &choice, &result)) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(lay_out(planner, &choice, &tried, error));
        DUNLIN_TRY(dunlin__planner_keep(planner, &tried, error));
        if (tried.is_fitting) {
            return DUNLIN_OK;
        }
        const uint64_t over = tried.pool_bytes - dunlin__planner_room(planner);
        limit -= over < limit / 2 ? over / 2 + DUNLIN_MEM_ALIGN : limit / 2;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__try_redos(dunlin_planner *planner, dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    const dunlin_mem_graph *graph = planner->graph;
    if (graph->n_ops > DUNLIN_RECOMPUTE_OPS || graph->n_swaps > 0 ||
        planner->most_samples < planner->options.batch) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__planner_set_slice(planner, planner->options.batch, error));
    dunlin_recompute_model *model = dunlin__alloc_array(alloc, 1, sizeof *model);
    if (model == NULL) {
        return dunlin__planner_no_memory(planner, error);
    }
    dunlin_status status =
        dunlin__recompute_open(&planner->at->remat, &planner->live, planner->options.batch,
                               planner->variants, model, error);
    if (status == DUNLIN_OK) {
        status = search(planner, model, error);
        dunlin__recompute_close(model);
    }
    dunlin__free_array(alloc, model, 1, sizeof *model);
    return status;
}
