/*
 * moves.c - the moves of the searches: drop greedily until a limit is kept, retain again what there
 * is room for, shake, descend.
 *
 * Invariant: deterministic. A choice is changed only by what a whole simulation shows to help.
 * Sources: eviction orders of Melon (Wang et al., MobiSys 2022, section 5, with the next use
 * instead of the last), of Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), and of
 * size over cost.
 */
#include "moves.h"

#include <math.h>
#include <string.h>

#define MAX_LISTED 24 /* candidates where regions run slice by slice */
#define N_STATES (DUNLIN_INTERVAL_EAGER + 1)
#define LARGE_STEPS 400

uint64_t dunlin__moves_random(dunlin_searcher *search)
{
    uint64_t x = search->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    search->random = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

/* In [0, 1). */
static double random_share(dunlin_searcher *search)
{
    return (double)(dunlin__moves_random(search) >> 11) * 0x1p-53;
}

bool dunlin__moves_spent(const dunlin_searcher *search)
{
    return search->remat->n_work >= search->work_end;
}

dunlin_remat_result dunlin__moves_run(const dunlin_searcher *search, const uint8_t *intervals)
{
    return dunlin__remat_run(search->remat, intervals, search->limits->limit_bytes);
}

dunlin_remat_result dunlin__moves_try(const dunlin_searcher *search, const uint8_t *intervals,
                                      const dunlin_remat_bar *bar)
{
    return dunlin__remat_try(search->remat, intervals, search->limits->limit_bytes, bar);
}

/* Candidates simulated at a time: simulating a large step, or one cut into regions, takes long, and
 * one candidate is informative enough. */
uint32_t dunlin__moves_tries(const dunlin_searcher *search)
{
    return search->remat->n_steps > LARGE_STEPS || search->remat->n_phases > 1 ? 1 : 4;
}

dunlin_greedy dunlin__moves_any_style(dunlin_searcher *search)
{
    const uint64_t order = dunlin__moves_random(search) % DUNLIN_N_ORDERS;
    const bool takes_worst = (dunlin__moves_random(search) & 1) != 0;
    return (dunlin_greedy){.order = (dunlin_greedy_order)order,
                           .takes_worst = takes_worst,
                           .n_tries = 2,
                           .is_noisy = true};
}

/* --- greedy --- */

/* The score of an interval if recomputing its root costs so much. */
static double score_at(const dunlin_remat *remat, const dunlin_greedy *style, uint32_t interval,
                       uint32_t position, uint64_t cost_ns)
{
    const dunlin_interval *at = &remat->intervals[interval];
    const double bytes = (double)remat->roots[at->root].bytes;
    const double cost = (double)cost_ns + 1.0;
    switch (style->order) {
    case DUNLIN_ORDER_NEXT_USE:
        return bytes / cost * (double)(at->to > position ? at->to - position : 1);
    case DUNLIN_ORDER_CHEAPEST:
        return 1.0 / cost;
    case DUNLIN_ORDER_LARGEST:
        return bytes;
    case DUNLIN_ORDER_SIZE_PER_COST:
    case DUNLIN_N_ORDERS:
    default:
        return bytes / cost;
    }
}

static double score_of(dunlin_searcher *search, const dunlin_greedy *style, uint32_t interval,
                       uint32_t position)
{
    dunlin_remat *remat = search->remat;
    const uint64_t cost_ns = dunlin__remat_recompute_cost(remat, remat->intervals[interval].root);
    const double score = score_at(remat, style, interval, position, cost_ns);
    return style->is_noisy ? score * (0.25 + random_share(search)) : score;
}

/* An upper bound of the interval's score: at least its makers run again, if it is not in a file. */
static double highest_score(const dunlin_searcher *search, const dunlin_greedy *style,
                            uint32_t interval, uint32_t position)
{
    const dunlin_remat *remat = search->remat;
    const dunlin_remat_root *root = &remat->roots[remat->intervals[interval].root];
    uint64_t cost_ns = 0;
    if (style->is_noisy || root->swap_out != DUNLIN_MEM_NONE) {
        return HUGE_VAL;
    }
    for (uint32_t m = 0; m < root->n_makers; m++) {
        cost_ns += remat->steps[remat->makers[root->first_maker + m]].cost_ns;
    }
    return score_at(remat, style, interval, position, cost_ns);
}

typedef struct {
    uint32_t interval;
    double score;
} candidate;

static void insert_candidate(const candidate *made, uint32_t n_max, candidate *best,
                             uint32_t *n_best)
{
    if (*n_best == n_max && best[n_max - 1].score >= made->score) {
        return;
    }
    uint32_t at = *n_best < n_max ? (*n_best)++ : n_max - 1;
    for (; at > 0 && best[at - 1].score < made->score; at--) {
        best[at] = best[at - 1];
    }
    best[at] = *made;
}

/* Intervals of one root are dropped together. */
static bool is_listed(const dunlin_remat *remat, const candidate *best, uint32_t n_best,
                      uint32_t root)
{
    for (uint32_t i = 0; i < n_best; i++) {
        if (remat->intervals[best[i].interval].root == root) {
            return true;
        }
    }
    return false;
}

/*
 * Where regions run slice by slice, what is not yet or no longer resident at a position counts too:
 * it is resident for other slices. The run goes to the position, or to the end of its region.
 */
static void list_in_regions(dunlin_searcher *search, const dunlin_greedy *style,
                            const uint8_t *intervals, uint32_t position, uint32_t end,
                            candidate *best, uint32_t *n_best)
{
    dunlin_remat *remat = search->remat;
    dunlin__remat_stand(remat, intervals, end);
    for (uint32_t g = 0; g < remat->n_intervals; g++) {
        const uint32_t r = remat->intervals[g].root;
        const bool holds = intervals[g] == DUNLIN_INTERVAL_RETAIN
                               ? dunlin__remat_is_over(remat, &remat->intervals[g], position)
                               : intervals[g] != DUNLIN_INTERVAL_EAGER &&
                                     dunlin__remat_is_here(remat, r) &&
                                     dunlin__remat_interval_at(remat, r, end) == g;
        const bool is_low = holds && *n_best == MAX_LISTED &&
                            highest_score(search, style, g, position) <= best[*n_best - 1].score;
        if (holds && !is_low && !is_listed(remat, best, *n_best, r)) {
            const candidate made = {.interval = g, .score = score_of(search, style, g, position)};
            insert_candidate(&made, MAX_LISTED, best, n_best);
        }
    }
}

/* The highest-scored intervals that hold memory after a position, at most n_tries, best first. */
static uint32_t list_candidates(dunlin_searcher *search, const dunlin_greedy *style,
                                const uint8_t *intervals, uint32_t position, candidate *best)
{
    dunlin_remat *remat = search->remat;
    uint32_t n_best = 0;
    if (remat->n_phases > 1) {
        const uint32_t end = remat->phases[remat->steps[position].phase].end;
        list_in_regions(search, style, intervals, position, position + 1, best, &n_best);
        if (end > position + 1) {
            list_in_regions(search, style, intervals, position, end, best, &n_best);
        }
        return n_best;
    }
    dunlin__remat_stand(remat, intervals, position + 1);
    for (uint32_t r = 0; r < remat->n_roots; r++) {
        const uint32_t interval = dunlin__remat_interval_at(remat, r, position + 1);
        if (!dunlin__remat_is_here(remat, r) || interval == DUNLIN_MEM_NONE ||
            intervals[interval] == DUNLIN_INTERVAL_EAGER ||
            remat->intervals[interval].to <= position) {
            continue;
        }
        const candidate made = {.interval = interval,
                                .score = score_of(search, style, interval, position)};
        insert_candidate(&made, style->n_tries, best, &n_best);
    }
    return n_best;
}

#define MAX_FLIPS 16

/* Intervals whose state changes together, and what it was. */
typedef struct {
    uint32_t interval[MAX_FLIPS];
    uint8_t held[MAX_FLIPS];
    uint8_t state[MAX_FLIPS];
    uint32_t n;
} flip;

static void add_flip(flip *made, const uint8_t *intervals, uint32_t interval, uint8_t state)
{
    if (made->n < MAX_FLIPS) {
        made->interval[made->n] = interval;
        made->held[made->n] = intervals[interval];
        made->state[made->n++] = state;
    }
}

/* Where regions run slice by slice, a root holds the batch in all of a region as long as one of its
 * intervals there is retained. */
static flip flip_of(const dunlin_searcher *search, const uint8_t *intervals, uint32_t interval,
                    uint32_t position)
{
    const dunlin_remat *remat = search->remat;
    flip made = {.n = 0};
    add_flip(&made, intervals, interval, dunlin__remat_lower(remat, intervals[interval]));
    const dunlin_remat_touch *touches = remat->touches;
    uint32_t touch = remat->intervals[interval].to_touch;
    while (touches[touch].prev != DUNLIN_MEM_NONE) {
        touch = touches[touch].prev;
    }
    for (; remat->n_phases > 1 && touch != DUNLIN_MEM_NONE; touch = touches[touch].next) {
        const uint32_t g = touches[touch].interval;
        if (g != DUNLIN_MEM_NONE && g != interval && intervals[g] == DUNLIN_INTERVAL_RETAIN &&
            dunlin__remat_is_over(remat, &remat->intervals[g], position)) {
            add_flip(&made, intervals, g, DUNLIN_INTERVAL_LAZY);
        }
    }
    return made;
}

/* What a root is computed from and may be retained beyond its own last touch. */
static uint32_t list_inputs(const dunlin_remat *remat, uint32_t root, uint32_t n_max,
                            uint32_t *out_inputs)
{
    const dunlin_remat_root *at = &remat->roots[root];
    uint32_t n = 0;
    for (uint32_t m = 0; m < at->n_makers; m++) {
        const dunlin_remat_step *step = &remat->steps[remat->makers[at->first_maker + m]];
        for (uint32_t t = step->first_touch; t < step->first_touch + step->n_touches; t++) {
            const uint32_t input = remat->touches[t].root;
            if (n < n_max && remat->touches[t].is_map_read &&
                remat->roots[input].extension[0] != DUNLIN_MEM_NONE) {
                out_inputs[n++] = input;
            }
        }
    }
    return n;
}

/* Retains what a root is computed from until a position, or what that is computed from (`depth` 1),
 * and so on. False: there is nothing to keep. */
static bool extend_inputs(const dunlin_remat *remat, const uint8_t *intervals, uint32_t root,
                          uint32_t position, int depth, flip *made)
{
    uint32_t level[MAX_FLIPS];
    uint32_t n = list_inputs(remat, root, MAX_FLIPS, level);
    for (; depth > 0; depth--) {
        uint32_t below[MAX_FLIPS];
        uint32_t n_below = 0;
        for (uint32_t i = 0; i < n; i++) {
            n_below += list_inputs(remat, level[i], MAX_FLIPS - n_below, &below[n_below]);
        }
        memcpy(level, below, n_below * sizeof *level);
        n = n_below;
    }
    bool has_kept = false;
    for (uint32_t k = 0; k < n; k++) {
        for (int i = 0; i < DUNLIN_MAX_EXTENSIONS; i++) {
            const uint32_t interval = remat->roots[level[k]].extension[i];
            if (interval != DUNLIN_MEM_NONE && remat->intervals[interval].from < position &&
                intervals[interval] != DUNLIN_INTERVAL_RETAIN) {
                add_flip(made, intervals, interval, DUNLIN_INTERVAL_RETAIN);
                has_kept = true;
            }
        }
    }
    return has_kept;
}

static void turn(const flip *made, uint8_t *intervals)
{
    for (uint32_t i = 0; i < made->n; i++) {
        intervals[made->interval[i]] = made->state[i];
    }
}

static void turn_back(const flip *made, uint8_t *intervals)
{
    for (uint32_t i = 0; i < made->n; i++) {
        intervals[made->interval[i]] = made->held[i];
    }
}

/* The score of a flip: excess bytes removed for each nanosecond; 0: nothing. */
static double worth_of(dunlin_searcher *search, uint8_t *intervals, const flip *made,
                       const dunlin_remat_result *before)
{
    const dunlin_remat_bar bar = {.max_excess_bytes = before->excess_bytes - 1,
                                  .max_cost_ns = UINT64_MAX};
    turn(made, intervals);
    const dunlin_remat_result after = dunlin__moves_try(search, intervals, &bar);
    turn_back(made, intervals);
    if (!after.is_valid) {
        return 0.0;
    }
    double gain = (double)(before->excess_bytes - after.excess_bytes);
    double cost = after.cost_ns > before->cost_ns ? (double)(after.cost_ns - before->cost_ns) : 0.0;
    return gain / (cost + 1.0);
}

/* Drops intervals until the limit is kept. False: nothing helps any more, or the work is spent. */
bool dunlin__moves_greedy(dunlin_searcher *search, const dunlin_greedy *style, uint8_t *intervals,
                          dunlin_remat_result *out_result)
{
    dunlin_remat_result now = dunlin__moves_run(search, intervals);
    bool takes_worst = style->takes_worst;
    while (now.excess_bytes != 0 && now.is_valid && !dunlin__moves_spent(search)) {
        candidate tried[MAX_LISTED] = {{0}};
        const uint32_t position = takes_worst ? now.peak_at : now.first_over;
        uint32_t n = list_candidates(search, style, intervals, position, tried);
        double best_worth = 0.0;
        flip best = {.n = 0};
        for (uint32_t i = 0; i < n && (i < style->n_tries || best.n == 0); i++) {
            for (int depth = -1; depth < DUNLIN_MAX_EXTENSIONS; depth++) {
                const dunlin_interval *at = &search->remat->intervals[tried[i].interval];
                flip made = flip_of(search, intervals, tried[i].interval, position);
                if (depth >= 0 &&
                    !extend_inputs(search->remat, intervals, at->root, at->to, depth, &made)) {
                    break;
                }
                double worth = worth_of(search, intervals, &made, &now);
                if (worth > best_worth) {
                    best_worth = worth;
                    best = made;
                }
            }
        }
        if (best.n == 0) {
            if (takes_worst != style->takes_worst || now.peak_at == now.first_over) {
                break;
            }
            takes_worst = !takes_worst; /* stuck here, perhaps not there */
            continue;
        }
        takes_worst = style->takes_worst;
        turn(&best, intervals);
        now = dunlin__moves_run(search, intervals);
    }
    *out_result = now;
    return now.is_valid && now.excess_bytes == 0;
}

/* --- polishing --- */

/* The room that is left between the ends of an interval is enough to retain its tensor. `sums` are
 * of a whole run. */
static bool has_room(const dunlin_searcher *search, uint32_t interval)
{
    const dunlin_remat *remat = search->remat;
    const dunlin_interval *at = &remat->intervals[interval];
    uint64_t bytes = remat->roots[at->root].bytes;
    const bool is_local = remat->steps[at->from].phase == remat->steps[at->to].phase;
    if (is_local && remat->n_phases > 1) {
        bytes = dunlin__remat_local_bytes(remat, remat->steps[at->from].phase, at->root);
    }
    for (uint32_t p = at->from + 1; p < at->to; p++) {
        if (remat->sums[p] + bytes > search->limits->limit_bytes) {
            return false;
        }
    }
    return true;
}

/* Tries another state for an interval; keeps it if the step gets cheaper within the limit. */
static bool try_state(dunlin_searcher *search, uint8_t *intervals, uint32_t interval, uint8_t state,
                      dunlin_remat_result *now)
{
    uint8_t held = intervals[interval];
    intervals[interval] = state;
    const dunlin_remat_bar bar = {.max_cost_ns = now->cost_ns - 1};
    if (now->cost_ns > 0 && dunlin__moves_try(search, intervals, &bar).is_valid) {
        *now = dunlin__moves_run(search, intervals);
        return true;
    }
    intervals[interval] = held;
    return false;
}

/* Retains again what can be retained, from a random interval on, until nothing changes. */
void dunlin__moves_polish(dunlin_searcher *search, uint8_t *intervals, dunlin_remat_result *now)
{
    dunlin_remat *remat = search->remat;
    bool has_changed = true;
    (void)dunlin__moves_run(search, intervals); /* leaves its sums */
    while (has_changed && !dunlin__moves_spent(search)) {
        has_changed = false;
        uint32_t first = (uint32_t)(dunlin__moves_random(search) % remat->n_intervals);
        for (uint32_t i = 0; i < remat->n_intervals && !dunlin__moves_spent(search); i++) {
            uint32_t interval = (first + i) % remat->n_intervals;
            const dunlin_interval *at = &remat->intervals[interval];
            if (intervals[interval] == DUNLIN_INTERVAL_RETAIN ||
                (at->is_extension && !dunlin__remat_is_asked_for(remat, at))) {
                continue;
            }
            bool has_kept = has_room(search, interval) &&
                            try_state(search, intervals, interval, DUNLIN_INTERVAL_RETAIN, now);
            const bool has_more = !has_kept && !at->is_extension;
            for (uint8_t state = DUNLIN_INTERVAL_LAZY;
                 has_more && !has_kept && state < intervals[interval]; state++) {
                if (state != DUNLIN_INTERVAL_SHORT || remat->n_phases > 1) {
                    has_kept = try_state(search, intervals, interval, state, now);
                }
            }
            has_changed |= has_kept;
        }
    }
}

/* --- the search --- */

/* Puts a part of what was dropped back, and drops a few others. */
void dunlin__moves_shake(dunlin_searcher *search, uint8_t *intervals)
{
    dunlin_remat *remat = search->remat;
    /* Where regions run slice by slice, many choices depend on each other: less is changed at a
     * time. */
    const bool is_cut = remat->n_phases > 1;
    double share = is_cut ? 0.05 + 0.15 * random_share(search) : 0.1 + 0.5 * random_share(search);
    bool is_local = (dunlin__moves_random(search) & 1) != 0;
    uint32_t centre = (uint32_t)(dunlin__moves_random(search) % remat->n_steps);
    for (uint32_t g = 0; g < remat->n_intervals; g++) {
        const dunlin_interval *at = &remat->intervals[g];
        bool is_near = !is_local || (at->from <= centre && centre <= at->to);
        if (intervals[g] != DUNLIN_INTERVAL_RETAIN && !at->is_extension && is_near &&
            random_share(search) < share) {
            intervals[g] = DUNLIN_INTERVAL_RETAIN;
        }
    }
    uint32_t n_drops = remat->n_intervals == 0 ? 0 : (uint32_t)(dunlin__moves_random(search) % 4);
    for (uint32_t i = 0; i < n_drops; i++) {
        uint32_t g = (uint32_t)(dunlin__moves_random(search) % remat->n_intervals);
        uint8_t held = intervals[g];
        intervals[g] =
            held == DUNLIN_INTERVAL_EAGER ? DUNLIN_INTERVAL_LAZY : dunlin__remat_lower(remat, held);
    }
}

/*
 * Changes intervals one by one, any of them to any state, wherever that brings the step closer to
 * the limit. False: no single change helps any more, or the work is spent.
 */
bool dunlin__moves_descend(dunlin_searcher *search, uint8_t *intervals, dunlin_remat_result *now)
{
    uint32_t n = search->remat->n_intervals;
    uint32_t n_idle = 0; /* intervals looked at since the last change */
    for (uint32_t g = 0; now->is_valid && now->excess_bytes != 0 && n_idle < n; g = (g + 1) % n) {
        n_idle++;
        for (int i = 1; i < N_STATES; i++) {
            uint8_t held = intervals[g];
            if (dunlin__moves_spent(search)) {
                return false;
            }
            intervals[g] = (uint8_t)((held + i) % N_STATES);
            if (intervals[g] == DUNLIN_INTERVAL_SHORT && search->remat->n_phases == 1) {
                intervals[g] = held;
                continue;
            }
            const dunlin_remat_bar bar = {.max_excess_bytes = now->excess_bytes - 1,
                                          .max_cost_ns = UINT64_MAX};
            if (dunlin__moves_try(search, intervals, &bar).is_valid) {
                *now = dunlin__moves_run(search, intervals);
                n_idle = 0;
                break;
            }
            intervals[g] = held;
        }
    }
    return now->is_valid && now->excess_bytes == 0;
}
