/*
 * redo_search.c - the cheapest choice of recomputed ops within a limit, by large neighbourhoods
 * (Shaw, CP 1998): some are removed or moved, the highest step is relieved until the limit is kept,
 * and what is not needed for that is removed again.
 *
 * Invariant: deterministic; work is counted in simulations, never in time.
 */
#include "redo.h"

#include <string.h>

#define PATIENCE_SHARE 3 /* this part of the work without a gain ends it, */
#define RESTART_RUNS 60  /* so many runs for each op restart it, with nothing recomputed */
#define N_TRIED 12       /* reliefs of a step that are simulated, of which the best is taken */
#define N_BARREN 3       /* so many times in a row none helps: given up */
#define MAX_RELIEFS 64
#define DEEP 32       /* all that is missing is recomputed, however deep */
#define REST_SHARE 10 /* the search goes on from what costs at most one part in so many more */

typedef struct {
    dunlin_recompute_model *model;
    uint64_t limit_bytes;
    uint64_t run_end;
    uint64_t random;
    uint64_t unit_ns; /* of the step, what a relief that costs nothing counts for */
} searcher;

static uint64_t random_below(searcher *search, uint64_t n)
{
    uint64_t x = search->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    search->random = x;
    return x * UINT64_C(0x2545F4914F6CDD1D) % n;
}

static double random_share(searcher *search)
{
    return (double)random_below(search, 1 << 20) * 0x1p-20;
}

static bool is_spent(const searcher *search)
{
    return search->model->n_runs >= search->run_end;
}

static dunlin_recompute_result run(searcher *search, const dunlin_recompute_choice *choice)
{
    return dunlin__recompute_run(search->model, choice, search->limit_bytes);
}

static void remove_group(const dunlin_recompute_model *model, dunlin_recompute_choice *choice,
                         uint32_t op, uint32_t stage)
{
    for (size_t w = 0; w < DUNLIN_RECOMPUTE_WORDS; w++) {
        choice->before[stage].word[w] &= ~model->ops[op].group.word[w];
    }
}

static void add_group(const dunlin_recompute_model *model, dunlin_recompute_choice *choice,
                      uint32_t op, uint32_t stage)
{
    for (size_t w = 0; w < DUNLIN_RECOMPUTE_WORDS; w++) {
        choice->before[stage].word[w] |= model->ops[op].group.word[w];
    }
}

static bool is_any(const dunlin_recompute_ops *ops)
{
    uint64_t any = 0;
    for (size_t w = 0; w < DUNLIN_RECOMPUTE_WORDS; w++) {
        any |= ops->word[w];
    }
    return any != 0;
}

/* --- relief of one step --- */

/* A step to be relieved, and what is touched around it: in the model, by tensor, `before` is the
 * last step up to here that does, `after` the stage of the next, as long as it is not recomputed
 * first, and `begin` twice the stage where it is, and one if that is its first run. */
typedef struct {
    uint32_t step;
    uint32_t stage;
    uint32_t idle[MAX_RELIEFS]; /* roots alive and not touched there that may be recomputed */
    uint32_t n_idle;
} spot;

static void look_around(dunlin_recompute_model *model, uint32_t step, spot *out)
{
    out->step = step;
    out->stage = model->stage_of[step];
    out->n_idle = 0;
    for (uint32_t t = 0; t < model->n_tensors; t++) {
        model->before[t] = model->after[t] = model->begin[t] = DUNLIN_MEM_NONE;
    }
    for (uint32_t k = 0; k < model->n_steps; k++) {
        const dunlin_recompute_op *op = &model->ops[model->op_of[k]];
        const bool is_recompute = model->op_of[k] != model->stage_of[k];
        for (uint32_t t = op->first_touch; t < op->first_touch + op->n_touches; t++) {
            const dunlin_recompute_touch *touch = &model->touches[t];
            const uint32_t root = touch->root;
            if (is_recompute && !touch->is_map) {
                continue;
            }
            if (k <= step) {
                model->before[root] = k;
            } else if (model->begin[root] != DUNLIN_MEM_NONE) {
                continue;
            } else if (touch->begins) {
                model->begin[root] = 2 * (uint32_t)model->stage_of[k] + (is_recompute ? 0 : 1);
            } else if (model->after[root] == DUNLIN_MEM_NONE) {
                model->after[root] = model->stage_of[k];
            }
        }
    }
    for (uint32_t t = 0; t < model->n_tensors && out->n_idle < MAX_RELIEFS; t++) {
        if (model->maker[t] != DUNLIN_MEM_NONE && model->before[t] != DUNLIN_MEM_NONE &&
            model->before[t] < step && model->after[t] != DUNLIN_MEM_NONE) {
            out->idle[out->n_idle++] = t;
        }
    }
}

/* Reading a root before a stage without recomputing it would retain it over the step. */
static bool is_missing(const dunlin_recompute_model *model, const spot *at, uint32_t root,
                       uint32_t stage)
{
    const uint32_t begin = model->begin[root];
    if (model->before[root] == at->step ||
        (model->before[root] != DUNLIN_MEM_NONE && model->after[root] != DUNLIN_MEM_NONE)) {
        return false;
    }
    if (begin == DUNLIN_MEM_NONE) {
        return true;
    }
    return begin / 2 > stage || begin == 2 * stage + 1;
}

/* Recomputes a root before a stage, and what is missing for that, to the given depth. */
static bool add_closure(const dunlin_recompute_model *model, const spot *at, uint32_t root,
                        uint32_t stage, uint32_t depth, dunlin_recompute_choice *choice)
{
    uint32_t ops[DUNLIN_RECOMPUTE_OPS];
    uint32_t depths[DUNLIN_RECOMPUTE_OPS];
    uint32_t n = 0;
    if (!dunlin__recompute_may(model, model->maker[root], stage)) {
        return false;
    }
    add_group(model, choice, model->maker[root], stage);
    for (uint32_t i = 0; i < stage; i++) {
        if (dunlin__recompute_has(&model->ops[model->maker[root]].group, i)) {
            ops[n] = i;
            depths[n++] = depth;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const dunlin_recompute_op *op = &model->ops[ops[i]];
        for (uint32_t t = op->first_touch; depths[i] > 0 && t < op->first_touch + op->n_touches;
             t++) {
            const uint32_t input = model->touches[t].root;
            const uint32_t maker = model->maker[input];
            if (!model->touches[t].is_map_read || maker == DUNLIN_MEM_NONE ||
                dunlin__recompute_has(&choice->before[stage], maker) ||
                !is_missing(model, at, input, stage) ||
                !dunlin__recompute_may(model, maker, stage)) {
                continue;
            }
            for (uint32_t j = 0; j < stage && n < DUNLIN_RECOMPUTE_OPS; j++) {
                if (dunlin__recompute_has(&model->ops[maker].group, j) &&
                    !dunlin__recompute_has(&choice->before[stage], j)) {
                    ops[n] = j;
                    depths[n++] = depths[i] - 1;
                }
            }
            add_group(model, choice, maker, stage);
        }
    }
    return true;
}

/* All recomputed ops of a stage, or one of them, run before another stage. */
static bool move_redos(searcher *search, uint32_t stage, dunlin_recompute_choice *choice)
{
    const dunlin_recompute_model *model = search->model;
    const dunlin_recompute_ops moved = choice->before[stage];
    const bool is_all = random_below(search, 2) == 0;
    const bool is_earlier = random_below(search, 4) != 0;
    const uint32_t far = 1 + (uint32_t)random_below(search, random_below(search, 2) == 0 ? 4 : 24);
    if ((is_earlier && far > stage) || (!is_earlier && stage + far >= model->n_ops)) {
        return false;
    }
    const uint32_t to = is_earlier ? stage - far : stage + far;
    uint32_t n = 0;
    for (uint32_t i = 0; i < stage; i++) {
        n += dunlin__recompute_has(&moved, i);
    }
    uint32_t chosen = n == 0 ? 0 : (uint32_t)random_below(search, n);
    bool has_moved = false;
    for (uint32_t i = 0; i < stage; i++) {
        if (!dunlin__recompute_has(&moved, i) || (!is_all && chosen-- != 0)) {
            continue;
        }
        if (dunlin__recompute_may(model, i, to)) {
            remove_group(model, choice, i, stage);
            add_group(model, choice, i, to);
            has_moved = true;
        }
    }
    return has_moved;
}

/* A way to have fewer bytes alive at a step, chosen at random. */
static bool draw_relief(searcher *search, const spot *at, dunlin_recompute_choice *choice)
{
    const dunlin_recompute_model *model = search->model;
    const bool has_redos = is_any(&choice->before[at->stage]);
    if (at->n_idle == 0 || (has_redos && random_below(search, 3) == 0)) {
        return has_redos && move_redos(search, at->stage, choice);
    }
    const uint32_t root = at->idle[random_below(search, at->n_idle)];
    const uint32_t last = model->after[root];
    const bool is_last = last == at->stage || random_below(search, 2) == 0;
    const uint32_t stage = is_last ? last : last - (uint32_t)random_below(search, last - at->stage);
    const uint64_t how = random_below(search, 5);
    const uint32_t depth = how < 3 ? DEEP : (uint32_t)how - 3;
    return add_closure(model, at, root, stage, depth, choice);
}

/* --- repair and trimming --- */

/* The best of a few reliefs of the highest step, two ways drawn at a time: one by itself often
 * helps only once there is another. False: none helps. */
static bool relieve(searcher *search, dunlin_recompute_choice *choice,
                    const dunlin_recompute_result *now)
{
    spot at;
    dunlin_recompute_choice best;
    double best_worth = 0.0;
    look_around(search->model, now->peak_step, &at);
    for (uint32_t i = 0; i < N_TRIED; i++) {
        dunlin_recompute_choice made = *choice;
        if (!draw_relief(search, &at, &made)) {
            continue;
        }
        (void)draw_relief(search, &at, &made);
        const dunlin_recompute_result result = run(search, &made);
        if (result.excess_bytes >= now->excess_bytes) {
            continue;
        }
        const double gain = (double)(now->excess_bytes - result.excess_bytes);
        const double more =
            result.cost_ns > now->cost_ns ? (double)(result.cost_ns - now->cost_ns) : 0.0;
        const double worth = gain / (more + (double)search->unit_ns) * (0.5 + random_share(search));
        if (worth > best_worth) {
            best_worth = worth;
            best = made;
        }
    }
    if (best_worth > 0.0) {
        *choice = best;
    }
    return best_worth > 0.0;
}

/* Relieves the highest step until the limit is kept. False: nothing helps, or the work is spent. */
static bool repair(searcher *search, dunlin_recompute_choice *choice, dunlin_recompute_result *now)
{
    *now = run(search, choice);
    for (uint32_t n_barren = 0; now->excess_bytes != 0;) {
        n_barren = relieve(search, choice, now) ? 0 : n_barren + 1;
        if (n_barren == N_BARREN || is_spent(search)) {
            return false;
        }
        *now = run(search, choice);
    }
    return true;
}

/* Takes away whatever need not run again, from a random stage on. */
static void trim(searcher *search, dunlin_recompute_choice *choice, dunlin_recompute_result *now)
{
    const dunlin_recompute_model *model = search->model;
    const uint32_t n = model->n_ops;
    const uint32_t first = (uint32_t)random_below(search, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t stage = (first + i) % n;
        for (uint32_t op = stage; op > 0 && is_any(&choice->before[stage]); op--) {
            if (!dunlin__recompute_has(&choice->before[stage], op - 1)) {
                continue;
            }
            const dunlin_recompute_ops held = choice->before[stage];
            remove_group(model, choice, op - 1, stage);
            const dunlin_recompute_result result = run(search, choice);
            if (result.excess_bytes == 0 && result.cost_ns <= now->cost_ns) {
                *now = result;
            } else {
                choice->before[stage] = held;
            }
        }
    }
}

/* Removes recomputed ops: those of a few stages in a row, of one op, or some of all; or moves some.
 */
static void shake(searcher *search, dunlin_recompute_choice *choice)
{
    const dunlin_recompute_model *model = search->model;
    const uint32_t n = model->n_ops;
    const uint64_t how = random_below(search, 4);
    const uint32_t first = (uint32_t)random_below(search, n);
    const uint32_t end = first + 1 + (uint32_t)random_below(search, n / 3 + 1);
    const uint64_t share = 10 + random_below(search, 50);
    for (uint32_t stage = 0; stage < n; stage++) {
        if (!is_any(&choice->before[stage])) {
            continue;
        }
        if (how == 0 && stage >= first && stage < end) {
            choice->before[stage] = (dunlin_recompute_ops){{0}};
        }
        if (how == 1) {
            remove_group(model, choice, first, stage);
        }
        for (uint32_t op = 0; how == 2 && op < stage; op++) {
            if (random_below(search, 100) < share) {
                remove_group(model, choice, op, stage);
            }
        }
        if (how == 3 && random_below(search, 4) == 0) {
            (void)move_redos(search, stage, choice);
        }
    }
}

bool dunlin__recompute_search(dunlin_recompute_model *model, uint64_t limit_bytes, uint64_t n_runs,
                              dunlin_recompute_choice *choice, dunlin_recompute_result *out_result)
{
    searcher search = {.model = model,
                       .limit_bytes = limit_bytes,
                       .run_end = model->n_runs + n_runs,
                       .random = UINT64_C(0x9E3779B97F4A7C15)};
    for (uint32_t i = 0; i < model->n_ops; i++) {
        search.unit_ns += model->ops[i].cost_ns / 256 + 1;
    }
    dunlin_recompute_choice now = *choice;
    dunlin_recompute_result at = run(&search, &now);
    bool has_best = at.excess_bytes == 0;
    bool has_won = false;
    bool is_new = !has_best; /* not yet a choice that fits */
    dunlin_recompute_result best = at;
    uint64_t last_gain = model->n_runs;
    uint64_t last_start = model->n_runs;
    while (!is_spent(&search) && model->n_runs - last_gain < n_runs / PATIENCE_SHARE) {
        const uint64_t since = last_gain > last_start ? last_gain : last_start;
        if (has_best && model->n_runs - since > (uint64_t)RESTART_RUNS * model->n_ops) {
            last_start = model->n_runs;
            memset(&now, 0, sizeof now);
            at = run(&search, &now);
            is_new = true;
        }
        dunlin_recompute_choice made = now;
        dunlin_recompute_result result;
        if (!is_new) {
            shake(&search, &made);
        }
        if (!repair(&search, &made, &result)) {
            continue;
        }
        trim(&search, &made, &result);
        if (!has_best || result.cost_ns < best.cost_ns) {
            best = result;
            *choice = made;
            has_best = has_won = true;
            last_gain = model->n_runs;
        }
        if (is_new || result.cost_ns <= at.cost_ns ||
            result.cost_ns <= best.cost_ns + best.cost_ns / REST_SHARE) {
            now = made;
            at = result;
        }
        is_new = false;
    }
    *out_result = best;
    return has_won;
}
