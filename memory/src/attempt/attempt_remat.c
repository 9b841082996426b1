/*
 * attempt_remat.c - attempts with rematerialisation: search and packing in turn.
 *
 * Invariant: a choice counts only once its schedule is laid out and packed; where the packing does
 * not fit, memory gets more expensive where it is short, and the search goes on from there
 * ("memory-calibrated": Wang et al., "Melon", MobiSys 2022, section 5).
 */
#include "attempt.h"

#include <mem/support.h>

#include <string.h>

#define MAX_ROUNDS 8        /* of rematerialisation, then packing */
#define SEARCH_RUNS 4000    /* simulations of the step, in large-neighbourhood moves, */
#define SEARCH_WORK 1000000 /* or so many ops, whichever is less */
#define HELD_REGIONS 3 /* that updates wait: gradients that need the weights are used by then */
/* Rounds before all of it gets less room: half of what was missing, at least one part in */
#define PRICE_ROUNDS 1
#define RESERVE_SHARE 128
#define IMPROVE_ROUNDS 2
#define PATIENT_ROUNDS 4 /* of the same, for a patient planner; */
#define PATIENCE 4       /* its moves end after so many times the work without a gain, */
#define NEAR_SHARE 8     /* and begin with what loses one part in so many to the best */
#define LOWER_STEPS 200  /* longer steps pack well as they are, and take long */

/* Fills the current model. */
static dunlin_status fill_model(dunlin_planner *planner, dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    dunlin_cut_model *model = planner->at;
    const dunlin_regions *regions = NULL;
    if (planner->cut != DUNLIN_CUT_NONE) {
        const uint32_t n_held = planner->cut == DUNLIN_CUT_UPDATES_LAST ? UINT32_MAX : HELD_REGIONS;
        DUNLIN_TRY(dunlin__regions_find(planner->graph, n_held, planner->options.n_cuts,
                                        planner->options.batch, alloc, &model->regions, error));
        regions = &model->regions;
        model->n_slices = regions->n_groups / 2;
        model->slices = dunlin__alloc_array(alloc, model->n_slices, sizeof *model->slices);
    }
    DUNLIN_TRY(
        dunlin__remat_open(planner->graph, &planner->live, regions, alloc, &model->remat, error));
    model->n_interval_bytes = 5 * model->remat.n_intervals + 1;
    model->intervals = dunlin__alloc_zeroed(alloc, model->n_interval_bytes, 1);
    if (model->intervals == NULL || (regions != NULL && model->slices == NULL)) {
        return dunlin__planner_no_memory(planner, error);
    }
    return DUNLIN_OK;
}

/* Takes the model for the step cut this way. */
static dunlin_status open_remat(dunlin_planner *planner, dunlin_cut cut, dunlin_error *error)
{
    planner->cut = cut;
    planner->at = &planner->models[cut];
    return planner->at->remat.graph != NULL ? DUNLIN_OK : fill_model(planner, error);
}

dunlin_status dunlin__planner_set_slice(dunlin_planner *planner, uint64_t slice_samples,
                                        dunlin_error *error)
{
    DUNLIN_TRY(open_remat(planner, DUNLIN_CUT_NONE, error));
    dunlin__planner_choose_fastest(planner, slice_samples);
    dunlin__remat_set_slice(&planner->at->remat, &planner->live, planner->options.batch,
                            slice_samples, planner->variants);
    return DUNLIN_OK;
}

/* Slices of a region in which the fixed costs of its ops take at most one part in `share`. */
static uint64_t slice_of(const dunlin_planner *planner, uint32_t region, uint64_t share)
{
    const dunlin_regions *regions = &planner->at->regions;
    const uint64_t batch = planner->options.batch;
    uint64_t fixed_ns = 0;
    uint64_t sample_ns = 0;
    for (uint32_t i = regions->first[2 * region + 1]; i < regions->first[2 * region + 2]; i++) {
        const uint32_t op = regions->order[i];
        const dunlin_mem_variant *variant =
            &planner->graph->ops[op].variants[planner->variants[op]];
        fixed_ns += variant->cost_fixed_ns;
        sample_ns += variant->cost_sample_ns;
    }
    if (share == 0) {
        return 1;
    }
    const uint64_t most = planner->most_of_region;
    const double least = (double)fixed_ns * (double)share / ((double)sample_ns + 1.0);
    const uint64_t slice = least < (double)most ? (uint64_t)least + 1 : most;
    const uint64_t n_slices = (batch - 1) / slice + 1;
    return (batch - 1) / n_slices + 1;
}

static dunlin_status set_regions(dunlin_planner *planner, dunlin_cut cut, uint64_t share,
                                 dunlin_error *error)
{
    DUNLIN_TRY(open_remat(planner, cut, error));
    dunlin__planner_choose_fastest(planner, planner->options.batch);
    if (share == 0) {
        dunlin__planner_choose_smallest(planner, 1);
    }
    planner->at->share = share;
    for (uint32_t r = 0; r < planner->at->n_slices; r++) {
        planner->at->slices[r] = slice_of(planner, r, share);
    }
    dunlin__remat_set_slices(&planner->at->remat, &planner->live, planner->options.batch,
                             planner->at->slices, planner->variants);
    return DUNLIN_OK;
}

dunlin_status dunlin__planner_reserve_steps(dunlin_planner *planner, uint32_t n_steps,
                                            dunlin_error *error)
{
    const dunlin_alloc *alloc = &planner->options.alloc;
    if (n_steps <= planner->n_steps_max) {
        return DUNLIN_OK;
    }
    dunlin_schedule_step *steps = dunlin__alloc_array(alloc, n_steps, sizeof *steps);
    dunlin_schedule_step *kept = dunlin__alloc_array(alloc, n_steps, sizeof *kept);
    if (steps == NULL || kept == NULL) {
        dunlin__free_array(alloc, steps, n_steps, sizeof *steps);
        dunlin__free_array(alloc, kept, n_steps, sizeof *kept);
        return dunlin__planner_no_memory(planner, error);
    }
    memcpy(kept, planner->kept.steps, planner->n_steps_max * sizeof *kept);
    dunlin__free_array(alloc, planner->schedule.steps, planner->n_steps_max, sizeof *steps);
    dunlin__free_array(alloc, planner->kept.steps, planner->n_steps_max, sizeof *kept);
    planner->schedule.steps = steps;
    planner->kept.steps = kept;
    planner->n_steps_max = n_steps;
    return DUNLIN_OK;
}

/* Lays out the schedule that the current choice of retention intervals means. */
static dunlin_status lay_out_intervals(dunlin_planner *planner, uint64_t slice_samples,
                                       uint64_t *out_bound, dunlin_error *error)
{
    dunlin_remat *remat = &planner->at->remat;
    uint32_t peak_step = 0;
    const dunlin_remat_result result = dunlin__remat_log(remat, planner->at->intervals);
    const dunlin_recompute_list list = {.recompute = remat->recompute, .n = result.n_recompute};
    DUNLIN_TRY(
        dunlin__planner_reserve_steps(planner, planner->graph->n_ops + result.n_recompute, error));
    return dunlin__planner_lay_out(planner, slice_samples, planner->cut != DUNLIN_CUT_NONE, &list,
                                   out_bound, &peak_step, error);
}

dunlin_status dunlin__try_intervals(dunlin_planner *planner, uint64_t slice_samples,
                                    dunlin_attempt *out_attempt, dunlin_error *error)
{
    uint64_t bound = 0;
    DUNLIN_TRY(lay_out_intervals(planner, slice_samples, &bound, error));
    dunlin__planner_conclude(planner, slice_samples, bound, dunlin__planner_pack(planner, bound),
                             out_attempt);
    return DUNLIN_OK;
}

/* From the position of the step before to that of step `k`: first runs of the body's ops move on.
 */
static uint32_t next_position(const dunlin_planner *planner, uint32_t k, uint32_t position)
{
    const dunlin_remat *remat = &planner->at->remat;
    const dunlin_schedule_step *step = &planner->schedule.steps[k];
    bool is_recompute = k + 1 < planner->schedule.n_steps && step->parts == DUNLIN_MEM_MAP &&
                        step->op < remat->steps[position].op;
    bool is_fixed = planner->graph->ops[step->op].parts == DUNLIN_MEM_FIXED ||
                    dunlin__mem_swap_of(planner->graph, step->op) != DUNLIN_MEM_SWAP_NO;
    while (!is_recompute && !is_fixed && position + 1 < remat->n_steps &&
           remat->steps[position + 1].op <= step->op) {
        position++;
    }
    return position;
}

uint32_t dunlin__planner_position(const dunlin_planner *planner, uint32_t step)
{
    uint32_t position = 0;
    for (uint32_t k = 0; k <= step && k < planner->schedule.n_steps; k++) {
        position = next_position(planner, k, position);
    }
    return position;
}

/* Where the pool's top, packed or alive, is above the room at a step: by how much. */
static uint64_t bytes_over(const dunlin_planner *planner, const dunlin_attempt *attempt, uint32_t k)
{
    const dunlin_live *live = &planner->live;
    const uint64_t room = dunlin__planner_room(planner);
    if (planner->sums[k] > room) {
        return planner->sums[k] - room;
    }
    for (uint32_t b = 0; b < live->n_blocks && attempt->lower_bound_bytes <= room; b++) {
        const dunlin_pack_block *block = &live->blocks[b];
        if (block->first_step <= k && k <= block->last_step &&
            block->offset_bytes + block->bytes > room) {
            return attempt->pool_bytes - room;
        }
    }
    return 0;
}

/*
 * Raises the price of memory where it is short: positions of steps whose bytes, packed or alive,
 * are above the pool's limit. A recomputed op belongs to the op that needs it. False: there are
 * none.
 */
static bool raise_prices(dunlin_planner *planner, const dunlin_attempt *attempt)
{
    dunlin_remat *remat = &planner->at->remat;
    const dunlin_schedule *schedule = &planner->schedule;
    uint32_t next = 0;   /* position that has not run yet */
    uint64_t raised = 0; /* at that position */
    bool has_raised = false;
    for (uint32_t k = 0; k < schedule->n_steps && next < remat->n_steps; k++) {
        const uint32_t op = schedule->steps[k].op;
        const uint64_t over = bytes_over(planner, attempt, k);
        if (over > raised) {
            dunlin__remat_add_penalty(remat, next, over - raised);
            raised = over;
            has_raised = true;
        }
        if (op == remat->steps[next].op) {
            next++;
            raised = 0;
        }
    }
    return has_raised;
}

/* Can the current attempt, laid out, still be the best, or lead there? */
static bool may_win(const dunlin_planner *planner, const dunlin_attempt *attempt)
{
    const uint64_t best_ns = planner->best.cost_ns;
    const uint64_t most_ns = planner->is_patient ? best_ns + best_ns / NEAR_SHARE : best_ns;
    return planner->packs_low || !planner->best.is_fitting || attempt->cost_ns < most_ns;
}

/* The search of one round. */
static bool search_round(dunlin_planner *planner, dunlin_effort effort, uint32_t round,
                         uint64_t limit_bytes)
{
    dunlin_remat *remat = &planner->at->remat;
    const uint64_t most = (uint64_t)SEARCH_RUNS * remat->n_steps;
    const uint64_t work = most < SEARCH_WORK ? most : SEARCH_WORK;
    const bool is_thorough = effort == DUNLIN_EFFORT_THOROUGH;
    const dunlin_remat_limits limits = {.limit_bytes = limit_bytes,
                                        .max_work = !is_thorough                        ? 0
                                                    : round == 0 || remat->n_phases > 1 ? work
                                                                                        : work / 8,
                                        .patience = planner->is_patient ? PATIENCE : 1,
                                        .has_start = round > 0,
                                        .is_rough = effort <= DUNLIN_EFFORT_ESTIMATE,
                                        .is_glance = effort == DUNLIN_EFFORT_GLANCE,
                                        .aim_ns = planner->aim_ns};
    dunlin_remat_result result;
    return dunlin__remat_search(remat, &limits, planner->at->intervals,
                                planner->at->intervals + remat->n_intervals, &result);
}

static uint8_t *fastest_intervals(const dunlin_cut_model *model)
{
    return model->intervals + (size_t)4 * model->remat.n_intervals;
}

/* If the current choice packs within the budget, later searches may start there. */
static void note_fastest(dunlin_planner *planner, const dunlin_attempt *attempt)
{
    dunlin_cut_model *model = planner->at;
    const bool is_faster = model->fastest_ns == 0 || attempt->cost_ns < model->fastest_ns;
    if (attempt->is_fitting && is_faster) {
        model->fastest_ns = attempt->cost_ns;
        model->fastest_share = model->share;
        memcpy(fastest_intervals(model), model->intervals, model->remat.n_intervals);
    }
}

/* Takes the fastest choice in slices as they are set that has packed; false: there is none. */
static bool start_from_fastest(dunlin_cut_model *model)
{
    const bool has_one = model->fastest_ns != 0 && model->fastest_share == model->share;
    if (has_one) {
        memcpy(model->intervals, fastest_intervals(model), model->remat.n_intervals);
    }
    return has_one;
}

/*
 * Keeps what fits and moves on from it, under the prices and the limit under which it packed. From
 * what does not pack it goes back to the fastest that did, with a smaller limit, or memory gets
 * more expensive.
 */
static dunlin_status improve(dunlin_planner *planner, uint64_t slice_samples, uint64_t limit_bytes,
                             dunlin_attempt *attempt, dunlin_error *error)
{
    const uint32_t n_rounds = planner->is_patient ? PATIENT_ROUNDS : IMPROVE_ROUNDS;
    for (uint32_t round = 0; round < n_rounds; round++) {
        uint64_t bound = 0;
        DUNLIN_TRY(dunlin__planner_keep(planner, attempt, error));
        note_fastest(planner, attempt);
        if (round > 0 && !attempt->is_fitting) {
            if (start_from_fastest(planner->at)) {
                limit_bytes -= limit_bytes / RESERVE_SHARE;
            } else if (!raise_prices(planner, attempt)) {
                return DUNLIN_OK;
            }
        }
        if (!search_round(planner, DUNLIN_EFFORT_THOROUGH, round + 1, limit_bytes)) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(lay_out_intervals(planner, slice_samples, &bound, error));
        dunlin__planner_conclude(planner, slice_samples, bound, UINT64_MAX, attempt);
        if (!may_win(planner, attempt)) {
            return DUNLIN_OK;
        }
        dunlin__planner_conclude(planner, slice_samples, bound,
                                 dunlin__planner_pack(planner, bound), attempt);
    }
    return DUNLIN_OK;
}

/* Alternates search and packing, from the current choice, until the packing fits. */
static dunlin_status run_rounds(dunlin_planner *planner, uint64_t slice_samples,
                                dunlin_effort effort, dunlin_attempt *out_attempt,
                                dunlin_error *error)
{
    dunlin_remat *remat = &planner->at->remat;
    *out_attempt = (dunlin_attempt){
        .slice_samples = slice_samples, .pool_bytes = UINT64_MAX, .cost_ns = UINT64_MAX};
    dunlin__remat_keep_all(remat, planner->at->intervals);
    const uint64_t room = dunlin__planner_room(planner);
    uint64_t limit = room;
    if (dunlin__remat_floor(remat) > room) {
        return DUNLIN_OK;
    }
    /* The quick search of a step cut into regions packs more often than one that went on. */
    const bool improves = effort == DUNLIN_EFFORT_THOROUGH && remat->n_phases > 1;
    const dunlin_effort first_effort = improves ? DUNLIN_EFFORT_QUICK : effort;
    for (uint32_t round = 0; round < MAX_ROUNDS; round++) {
        uint64_t bound = 0;
        if (!search_round(planner, first_effort, round, limit)) {
            return DUNLIN_OK;
        }
        DUNLIN_TRY(lay_out_intervals(planner, slice_samples, &bound, error));
        dunlin__planner_conclude(planner, slice_samples, bound, UINT64_MAX, out_attempt);
        if (effort <= DUNLIN_EFFORT_ESTIMATE || !may_win(planner, out_attempt)) {
            return DUNLIN_OK;
        }
        dunlin__planner_conclude(planner, slice_samples, bound,
                                 dunlin__planner_pack(planner, bound), out_attempt);
        if (out_attempt->is_fitting && improves) {
            return improve(planner, slice_samples, limit, out_attempt, error);
        }
        if (out_attempt->is_fitting || !raise_prices(planner, out_attempt)) {
            return DUNLIN_OK;
        }
        /* Where prices do not help, all of it gets less room. */
        const uint64_t over = (out_attempt->pool_bytes - room) / 2;
        const uint64_t least = room / RESERVE_SHARE;
        const uint64_t less = over > least ? over : least;
        limit -= round < PRICE_ROUNDS ? 0 : less < limit ? less : limit;
    }
    return DUNLIN_OK;
}

void dunlin__planner_pack_round(dunlin_planner *planner, dunlin_attempt *attempt)
{
    const uint64_t bound = attempt->lower_bound_bytes;
    dunlin__planner_conclude(planner, attempt->slice_samples, bound,
                             dunlin__planner_pack(planner, bound), attempt);
}

dunlin_status dunlin__planner_search_round(dunlin_planner *planner, dunlin_attempt *attempt,
                                           dunlin_error *error)
{
    uint64_t bound = 0;
    const uint64_t room = dunlin__planner_room(planner);
    if (!raise_prices(planner, attempt) ||
        !search_round(planner, DUNLIN_EFFORT_ESTIMATE, 1, room)) {
        attempt->cost_ns = UINT64_MAX;
        return DUNLIN_OK;
    }
    DUNLIN_TRY(lay_out_intervals(planner, attempt->slice_samples, &bound, error));
    dunlin__planner_conclude(planner, attempt->slice_samples, bound, UINT64_MAX, attempt);
    return DUNLIN_OK;
}

dunlin_status dunlin__try_remat(dunlin_planner *planner, uint64_t slice_samples,
                                dunlin_effort effort, dunlin_attempt *out_attempt,
                                dunlin_error *error)
{
    DUNLIN_TRY(dunlin__planner_set_slice(planner, slice_samples, error));
    return run_rounds(planner, slice_samples, effort, out_attempt, error);
}

dunlin_status dunlin__try_regions(dunlin_planner *planner, dunlin_cut cut, uint64_t share,
                                  dunlin_effort effort, dunlin_attempt *out_attempt,
                                  dunlin_error *error)
{
    DUNLIN_TRY(set_regions(planner, cut, share, error));
    return run_rounds(planner, planner->options.batch, effort, out_attempt, error);
}

dunlin_status dunlin__estimate_again(dunlin_planner *planner, dunlin_cut cut, uint64_t share,
                                     const uint8_t *intervals, dunlin_attempt *out_attempt,
                                     dunlin_error *error)
{
    const uint64_t batch = planner->options.batch;
    uint64_t bound = 0;
    if (cut == DUNLIN_CUT_NONE) {
        DUNLIN_TRY(dunlin__planner_set_slice(planner, batch, error));
    } else {
        DUNLIN_TRY(set_regions(planner, cut, share, error));
    }
    memcpy(planner->at->intervals, intervals, planner->at->remat.n_intervals);
    DUNLIN_TRY(lay_out_intervals(planner, batch, &bound, error));
    dunlin__planner_conclude(planner, batch, bound, UINT64_MAX, out_attempt);
    return DUNLIN_OK;
}

dunlin_status dunlin__try_from_fastest(dunlin_planner *planner, dunlin_error *error)
{
    const dunlin_cut_model *held = &planner->models[DUNLIN_CUT_UPDATES_HELD];
    const dunlin_cut_model *last = &planner->models[DUNLIN_CUT_UPDATES_LAST];
    const bool is_held =
        held->fastest_ns != 0 && (last->fastest_ns == 0 || held->fastest_ns <= last->fastest_ns);
    const dunlin_cut_model *from = is_held ? held : last;
    const dunlin_cut cut = is_held ? DUNLIN_CUT_UPDATES_HELD : DUNLIN_CUT_UPDATES_LAST;
    dunlin_attempt attempt;
    if (from->fastest_ns == 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__estimate_again(planner, cut, from->fastest_share, fastest_intervals(from),
                                      &attempt, error));
    DUNLIN_TRY(
        improve(planner, attempt.slice_samples, dunlin__planner_room(planner), &attempt, error));
    note_fastest(planner, &attempt);
    return dunlin__planner_keep(planner, &attempt, error);
}

/* Between the live bytes of the lowest choice and its packing there may be room for another. */
static dunlin_status lower_packed(dunlin_planner *planner, uint64_t slice_samples,
                                  dunlin_attempt *attempt, dunlin_error *error)
{
    dunlin_remat *remat = &planner->at->remat;
    const size_t n = remat->n_intervals;
    const uint64_t budget = planner->budget_bytes;
    uint8_t *best = planner->at->intervals + 3 * n;
    uint64_t low = attempt->lower_bound_bytes;
    uint64_t high = attempt->pool_bytes;
    memcpy(best, planner->at->intervals, n);
    while (remat->n_steps <= LOWER_STEPS && remat->n_phases == 1 &&
           high - low > DUNLIN_MEM_ALIGN + high / 128) {
        const uint64_t middle = low + (high - low) / 2;
        dunlin_attempt tried;
        planner->budget_bytes = planner->persistent_bytes + middle;
        dunlin__remat_forget_penalties(remat);
        DUNLIN_TRY(run_rounds(planner, slice_samples, DUNLIN_EFFORT_QUICK, &tried, error));
        if (tried.is_fitting) {
            memcpy(best, planner->at->intervals, n);
            high = tried.pool_bytes;
        }
        low = tried.is_fitting ? low : middle;
        low = low < high ? low : high;
    }
    planner->budget_bytes = budget;
    memcpy(planner->at->intervals, best, n);
    return dunlin__try_intervals(planner, slice_samples, attempt, error);
}

/* From the slices that are set. */
static dunlin_status try_lowest(dunlin_planner *planner, uint64_t slice_samples,
                                dunlin_attempt *out_attempt, dunlin_error *error)
{
    dunlin_cut_model *at = planner->at;
    (void)dunlin__remat_lowest(&at->remat, at->intervals, at->intervals + at->remat.n_intervals);
    planner->packs_low = true;
    dunlin_status status = dunlin__try_intervals(planner, slice_samples, out_attempt, error);
    if (status == DUNLIN_OK) {
        status = lower_packed(planner, slice_samples, out_attempt, error);
    }
    planner->packs_low = false;
    return status;
}

dunlin_status dunlin__try_lowest(dunlin_planner *planner, uint64_t slice_samples,
                                 dunlin_attempt *out_attempt, dunlin_error *error)
{
    DUNLIN_TRY(open_remat(planner, DUNLIN_CUT_NONE, error));
    dunlin__planner_choose_fastest(planner, slice_samples);
    dunlin__planner_choose_smallest(planner, slice_samples);
    dunlin__remat_set_slice(&planner->at->remat, &planner->live, planner->options.batch,
                            slice_samples, planner->variants);
    return try_lowest(planner, slice_samples, out_attempt, error);
}

dunlin_status dunlin__try_lowest_regions(dunlin_planner *planner, dunlin_cut cut,
                                         dunlin_attempt *out_attempt, dunlin_error *error)
{
    DUNLIN_TRY(set_regions(planner, cut, 0, error));
    return try_lowest(planner, planner->options.batch, out_attempt, error);
}
