/*
 * resimulate.c - simulations of the step that visit only the parts that differ from the run before.
 *
 * Invariant: the results are those of a whole run. A part of the step has the same result in two
 * runs, except for bytes that are alive throughout, if each of the roots on which it depends is
 * resident in both or in neither, and in the same state.
 */
#include "simulate.h"

#include <string.h>

#define MAX_CHANGES 64 /* intervals; with more it is run from the first of them on */
#define COMPARED 256   /* intervals compared together, */
#define PART 16

/* Where a choice differs from the base. */
typedef struct {
    uint32_t root;
    uint32_t first_mark, last_mark; /* of its interval */
} changed;

typedef struct {
    changed at[MAX_CHANGES];
    uint32_t n;           /* more than MAX_CHANGES: not all are listed */
    uint32_t first, last; /* positions */
} difference;

static uint64_t *here_at(const dunlin_remat *remat, uint32_t mark)
{
    return &remat->mark_is_here[(size_t)mark * remat->n_words];
}

static uint64_t *involved_at(const dunlin_remat *remat, uint32_t mark)
{
    return &remat->is_involved[(size_t)mark * remat->n_words];
}

static uint64_t *asked_at(const dunlin_remat *remat, uint32_t mark)
{
    return &remat->is_asked[(size_t)mark * remat->n_words];
}

static size_t set_bytes(const dunlin_remat *remat)
{
    return remat->n_words * sizeof *remat->is_here;
}

static void note_change(const dunlin_remat *remat, uint32_t interval, difference *out)
{
    const dunlin_interval *at = &remat->intervals[interval];
    if (out->n < MAX_CHANGES) {
        out->at[out->n] = (changed){.root = at->root,
                                    .first_mark = remat->steps[at->from].mark,
                                    .last_mark = remat->steps[at->to].mark};
    }
    out->n += out->n <= MAX_CHANGES;
    out->first = at->from < out->first ? at->from : out->first;
    out->last = at->to > out->last ? at->to : out->last;
}

static void find_difference(const dunlin_remat *remat, const uint8_t *intervals, difference *out)
{
    const uint32_t n = remat->n_intervals;
    out->n = 0;
    out->first = remat->n_steps;
    out->last = 0;
    for (uint32_t block = 0; block < n; block += COMPARED) {
        const uint32_t block_end = block + COMPARED < n ? block + COMPARED : n;
        if (memcmp(&intervals[block], &remat->base_intervals[block], block_end - block) == 0) {
            continue;
        }
        for (uint32_t g = block; g < block_end; g += PART) {
            const uint32_t end = g + PART < block_end ? g + PART : block_end;
            if (end - g == PART && memcmp(&intervals[g], &remat->base_intervals[g], PART) == 0) {
                continue;
            }
            for (uint32_t i = g; i < end; i++) {
                if (intervals[i] != remat->base_intervals[i]) {
                    note_change(remat, i, out);
                }
            }
        }
    }
}

/* --- standing at a mark --- */

static dunlin_simulation start(dunlin_remat *remat, const uint8_t *intervals, uint64_t limit_bytes)
{
    memset(remat->is_here, 0, set_bytes(remat));
    memset(remat->is_whole, 0, set_bytes(remat));
    memset(remat->is_local, 0, set_bytes(remat));
    return (dunlin_simulation){.remat = remat,
                               .intervals = intervals,
                               .limit_bytes = limit_bytes,
                               .sums = remat->try_sums,
                               .so_far = {.is_valid = true, .first_over = DUNLIN_MEM_NONE}};
}

/* At the beginning of a region what is resident holds the batch. */
static void stand(dunlin_simulation *run, uint64_t bytes)
{
    dunlin_remat *remat = run->remat;
    const bool has_regions = remat->n_phases > 1;
    run->live_bytes = has_regions ? 0 : bytes;
    run->whole_bytes = has_regions ? bytes : 0;
    if (has_regions) {
        memcpy(remat->is_whole, remat->is_here, set_bytes(remat));
    }
}

static uint64_t bytes_here(const dunlin_simulation *run)
{
    return run->live_bytes + run->whole_bytes;
}

/* The state of the base at the mark. */
static dunlin_simulation resume(dunlin_remat *remat, const uint8_t *intervals, uint32_t mark)
{
    dunlin_simulation run = start(remat, intervals, remat->base_limit_bytes);
    memcpy(remat->is_here, here_at(remat, mark), set_bytes(remat));
    stand(&run, remat->marks[mark].bytes);
    run.so_far = remat->marks[mark].so_far;
    return run;
}

/* --- from mark to mark --- */

/* A run beside the base. */
typedef struct {
    dunlin_simulation run;
    const difference *change;
    bool is_base;    /* it becomes the base, so the marks are set anew */
    bool is_wild;    /* nothing is taken from the base */
    bool is_other;   /* what is resident differs: remat->is_other says in what */
    bool is_current; /* the scratch is as it is in this run; else it is the base's and is_other */
    uint64_t bytes;  /* of the roots that are there */
} again;

static bool is_affected(const again *at, uint32_t mark)
{
    const dunlin_remat *remat = at->run.remat;
    const uint64_t *involved = involved_at(remat, mark);
    if (at->is_wild) {
        return true;
    }
    for (uint32_t i = 0; i < at->change->n; i++) {
        const changed *interval = &at->change->at[i];
        const bool is_over = interval->first_mark <= mark && mark <= interval->last_mark;
        if (is_over && (involved[interval->root / 64] >> (interval->root % 64) & 1) != 0) {
            return true;
        }
    }
    if (!at->is_other) {
        return false;
    }
    uint64_t common = 0;
    for (uint32_t w = 0; w < remat->n_words; w++) {
        common |= remat->is_other[w] & involved[w];
    }
    return common != 0;
}

static void set_mark(const again *at, uint32_t mark)
{
    const dunlin_remat *remat = at->run.remat;
    remat->marks[mark].so_far = at->run.so_far;
    remat->marks[mark].bytes = at->bytes;
}

/* Roots that the positions up to the next mark touch, and those that recomputed ops there ask
 * about. */
static void involve(const dunlin_remat *remat, uint32_t mark)
{
    uint64_t *involved = involved_at(remat, mark);
    memcpy(involved, asked_at(remat, mark), set_bytes(remat));
    const dunlin_remat_step *steps = remat->steps;
    const uint32_t end = remat->marks[mark + 1].first;
    for (uint32_t p = remat->marks[mark].first; p < end; p++) {
        for (uint32_t t = steps[p].first_touch; t < steps[p].first_touch + steps[p].n_touches;
             t++) {
            const uint32_t root = remat->touches[t].root;
            involved[root / 64] |= UINT64_C(1) << (root % 64);
        }
    }
}

/* Runs what lies between a mark and the next. */
static void run_part(again *at, uint32_t mark)
{
    dunlin_simulation *run = &at->run;
    dunlin_remat *remat = run->remat;
    if (!at->is_current) {
        const uint64_t *here = here_at(remat, mark);
        for (uint32_t w = 0; w < remat->n_words; w++) {
            remat->is_here[w] = here[w] ^ (at->is_other ? remat->is_other[w] : 0);
        }
        stand(run, at->bytes);
        at->is_current = true;
    }
    if (!at->is_base) {
        dunlin__simulation_run(run, mark);
        at->bytes = bytes_here(run);
        return;
    }
    dunlin_remat_mark *made = &remat->marks[mark];
    const dunlin_remat_result before = run->so_far;
    set_mark(at, mark);
    memcpy(here_at(remat, mark), remat->is_here, set_bytes(remat));
    run->sums = remat->sums;
    run->is_asked = asked_at(remat, mark);
    memset(run->is_asked, 0, set_bytes(remat));
    run->so_far.is_valid = true;
    dunlin__simulation_run(run, mark);
    involve(remat, mark);
    made->is_valid = run->so_far.is_valid;
    run->so_far.is_valid &= before.is_valid;
    at->bytes = bytes_here(run);
    made->peak_bytes = 0;
    for (uint32_t p = made->first; p < remat->marks[mark + 1].first; p++) {
        if (remat->sums[p] > made->peak_bytes) {
            made->peak_bytes = remat->sums[p];
            made->peak_at = p;
        }
    }
}

/* Takes what lies between a mark and the next from the base, whose next mark has not been set. */
static void skip_part(again *at, uint32_t mark)
{
    dunlin_remat *remat = at->run.remat;
    dunlin_remat_mark *base = &remat->marks[mark];
    const dunlin_remat_mark *next = base + 1;
    const uint64_t more_bytes = at->bytes - base->bytes; /* may wrap */
    const dunlin_remat_result before = at->run.so_far;
    dunlin_remat_result *so_far = &at->run.so_far;
    const uint64_t peak_bytes = base->peak_bytes + more_bytes;
    if (peak_bytes > at->run.limit_bytes) {
        dunlin__simulation_add_up(remat->sums, more_bytes, base->first, next->first,
                                  at->run.limit_bytes, so_far);
    } else if (peak_bytes > so_far->peak_bytes) {
        so_far->peak_bytes = peak_bytes;
        so_far->peak_at = base->peak_at;
    }
    so_far->cost_ns += next->so_far.cost_ns - base->so_far.cost_ns;
    so_far->n_recompute += next->so_far.n_recompute - base->so_far.n_recompute;
    so_far->is_valid &= base->is_valid;
    if (at->is_base) {
        base->so_far = before;
        base->bytes = at->bytes;
        base->peak_bytes = peak_bytes;
        uint64_t *here = here_at(remat, mark);
        for (uint32_t w = 0; at->is_other && w < remat->n_words; w++) {
            here[w] ^= remat->is_other[w];
        }
        for (uint32_t p = base->first; p < next->first; p++) {
            remat->sums[p] += more_bytes;
        }
    }
    at->bytes = next->bytes + more_bytes;
    at->is_current = false;
}

/* Compares what is resident at a mark with the base. */
static void compare(again *at, uint32_t mark)
{
    const dunlin_remat *remat = at->run.remat;
    const uint64_t *here = here_at(remat, mark);
    uint64_t any = 0;
    for (uint32_t w = 0; w < remat->n_words; w++) {
        remat->is_other[w] = remat->is_here[w] ^ here[w];
        any |= remat->is_other[w];
    }
    at->is_other = any != 0;
}

/* From the sums: what comes at each mark and after it. */
static void look_ahead(dunlin_remat *remat)
{
    dunlin_remat_mark rest = {.is_rest_valid = true, .rest_first_over = DUNLIN_MEM_NONE};
    for (uint32_t m = remat->n_marks; m > 0; m--) {
        dunlin_remat_mark *mark = &remat->marks[m - 1];
        if (mark->peak_bytes >= rest.rest_peak_bytes) {
            rest.rest_peak_bytes = mark->peak_bytes;
            rest.rest_peak_at = mark->peak_at;
        }
        rest.is_rest_valid &= mark->is_valid;
        for (uint32_t p = mark->first; mark->peak_bytes > remat->base_limit_bytes; p++) {
            if (remat->sums[p] > remat->base_limit_bytes) {
                rest.rest_first_over = p;
                break;
            }
        }
        mark->is_rest_valid = rest.is_rest_valid;
        mark->rest_peak_bytes = rest.rest_peak_bytes;
        mark->rest_peak_at = rest.rest_peak_at;
        mark->rest_first_over = rest.rest_first_over;
    }
}

/* From this mark on everything is as in the base: its end is the end. */
static void join(again *at, uint32_t mark)
{
    const dunlin_remat *remat = at->run.remat;
    const dunlin_remat_mark *base = &remat->marks[mark];
    dunlin_remat_result *so_far = &at->run.so_far;
    so_far->cost_ns += remat->base.cost_ns - base->so_far.cost_ns;
    so_far->excess_bytes += remat->base.excess_bytes - base->so_far.excess_bytes;
    so_far->n_recompute += remat->base.n_recompute - base->so_far.n_recompute;
    so_far->is_valid &= base->is_rest_valid;
    if (base->rest_peak_bytes > so_far->peak_bytes) {
        so_far->peak_bytes = base->rest_peak_bytes;
        so_far->peak_at = base->rest_peak_at;
    }
    if (so_far->first_over == DUNLIN_MEM_NONE) {
        so_far->first_over = base->rest_first_over;
    }
}

static bool is_within(const dunlin_remat_result *so_far, const dunlin_remat_bar *bar)
{
    return so_far->is_valid && so_far->excess_bytes <= bar->max_excess_bytes &&
           so_far->cost_ns <= bar->max_cost_ns;
}

/* Goes on to the end. */
static dunlin_remat_result go_on(again *at, uint32_t mark, const dunlin_remat_bar *bar)
{
    dunlin_remat *remat = at->run.remat;
    dunlin_remat_result *so_far = &at->run.so_far;
    const uint32_t last = at->is_wild ? 0 : remat->steps[at->change->last].mark;
    for (uint32_t m = mark; m < remat->n_marks; m++) {
        if (is_affected(at, m)) {
            run_part(at, m);
            if (!at->is_wild) {
                compare(at, m + 1);
            }
        } else if (!at->is_base && !at->is_other && m > last) {
            join(at, m);
            break;
        } else {
            skip_part(at, m);
            remat->n_work++;
        }
        if (bar != NULL && !is_within(so_far, bar)) {
            so_far->is_valid = false;
            return *so_far;
        }
    }
    so_far->is_valid &= so_far->n_recompute <= remat->n_recompute_max;
    so_far->is_valid &= bar == NULL || is_within(so_far, bar);
    return *so_far;
}

/* --- runs --- */

/* The base for another limit. */
static void change_limit(dunlin_remat *remat, uint64_t limit_bytes)
{
    dunlin_remat_result *base = &remat->base;
    dunlin_remat_result over = {.first_over = DUNLIN_MEM_NONE};
    for (uint32_t m = 0; m < remat->n_marks; m++) {
        dunlin_remat_mark *mark = &remat->marks[m];
        mark->so_far.excess_bytes = over.excess_bytes;
        mark->so_far.first_over = over.first_over;
        if (mark->peak_bytes > limit_bytes) {
            dunlin__simulation_add_up(remat->sums, 0, mark->first, mark[1].first, limit_bytes,
                                      &over);
        }
    }
    base->excess_bytes = over.excess_bytes;
    base->first_over = over.first_over;
    remat->base_limit_bytes = limit_bytes;
    look_ahead(remat);
}

static again begin(dunlin_remat *remat, const uint8_t *intervals, uint64_t limit_bytes,
                   const difference *change)
{
    again at = {.change = change, .is_current = true};
    if (!remat->has_base) {
        at.run = start(remat, intervals, limit_bytes);
        at.is_wild = true;
        return at;
    }
    at.is_wild = change->n > MAX_CHANGES;
    at.run = resume(remat, intervals, remat->steps[change->first].mark);
    at.bytes = bytes_here(&at.run);
    return at;
}

dunlin_remat_result dunlin__remat_run(dunlin_remat *remat, const uint8_t *intervals,
                                      uint64_t limit_bytes)
{
    difference change = {.first = 0};
    if (remat->n_steps == 0) {
        return (dunlin_remat_result){.is_valid = true, .first_over = DUNLIN_MEM_NONE};
    }
    if (remat->has_base) {
        if (remat->base_limit_bytes != limit_bytes) {
            change_limit(remat, limit_bytes);
        }
        find_difference(remat, intervals, &change);
        if (change.n == 0) {
            return remat->base;
        }
    }
    again at = begin(remat, intervals, limit_bytes, &change);
    at.is_base = true;
    const uint32_t mark = remat->has_base ? remat->steps[change.first].mark : 0;
    remat->base = go_on(&at, mark, NULL);
    set_mark(&at, remat->n_marks);
    memcpy(remat->base_intervals, intervals, remat->n_intervals);
    remat->base_limit_bytes = limit_bytes;
    remat->has_base = true;
    look_ahead(remat);
    return remat->base;
}

dunlin_remat_result dunlin__remat_try(dunlin_remat *remat, const uint8_t *intervals,
                                      uint64_t limit_bytes, const dunlin_remat_bar *bar)
{
    difference change = {.first = 0};
    if (!remat->has_base || remat->n_steps == 0) {
        dunlin_remat_result result = dunlin__remat_run(remat, intervals, limit_bytes);
        result.is_valid = is_within(&result, bar);
        return result;
    }
    if (remat->base_limit_bytes != limit_bytes) {
        change_limit(remat, limit_bytes);
    }
    find_difference(remat, intervals, &change);
    if (change.n == 0) {
        dunlin_remat_result result = remat->base;
        result.is_valid = is_within(&result, bar);
        return result;
    }
    again at = begin(remat, intervals, limit_bytes, &change);
    return go_on(&at, remat->steps[change.first].mark, bar);
}

bool dunlin__remat_is_asked_for(const dunlin_remat *remat, const dunlin_interval *interval)
{
    const dunlin_remat_touch *touch = &remat->touches[interval->to_touch];
    while (touch->interval != DUNLIN_MEM_NONE &&
           remat->base_intervals[touch->interval] == DUNLIN_INTERVAL_RETAIN) {
        touch =
            &remat->touches[remat->intervals[touch->interval].to_touch]; /* kept on from there */
    }
    const uint32_t last = remat->steps[touch->position].mark;
    for (uint32_t mark = remat->steps[interval->from].mark; mark <= last; mark++) {
        if ((asked_at(remat, mark)[interval->root / 64] >> (interval->root % 64) & 1) != 0) {
            return true;
        }
    }
    return false;
}

dunlin_remat_result dunlin__remat_log(dunlin_remat *remat, const uint8_t *intervals)
{
    dunlin_simulation run = start(remat, intervals, UINT64_MAX);
    run.does_log = true;
    for (uint32_t m = 0; m < remat->n_marks; m++) {
        dunlin__simulation_run(&run, m);
    }
    run.so_far.is_valid &= run.so_far.n_recompute <= remat->n_recompute_max;
    return run.so_far;
}

void dunlin__remat_stand(dunlin_remat *remat, const uint8_t *intervals, uint32_t position)
{
    difference change = {.first = 0};
    remat->stood_intervals = intervals;
    remat->stood_at = position;
    if (remat->n_steps == 0) {
        return;
    }
    if (remat->has_base) {
        find_difference(remat, intervals, &change);
    }
    uint32_t mark = position < remat->n_steps ? remat->steps[position].mark : remat->n_marks - 1;
    if (change.first < remat->n_steps && remat->steps[change.first].mark < mark) {
        mark = remat->steps[change.first].mark;
    }
    dunlin_simulation run =
        remat->has_base ? resume(remat, intervals, mark) : start(remat, intervals, UINT64_MAX);
    while (mark < remat->n_marks && remat->marks[mark + 1].first <= position) {
        dunlin__simulation_run(&run, mark++);
    }
    if (mark < remat->n_marks) {
        dunlin__simulation_run_to(&run, mark, position);
    }
}
