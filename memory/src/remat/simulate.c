/*
 * simulate.c - simulates a choice of retention intervals: what is recomputed and when, what it
 * costs, and how many bytes are alive at each position.
 *
 * Invariant: a run does what the schedule made from it will do. Second outputs of recomputed ops
 * count until their next use. In a region that runs slice by slice, what holds the whole batch
 * counts from its beginning to its end.
 */
#include "simulate.h"

static void reach(dunlin_simulation *run, uint64_t bytes)
{
    bytes += run->is_sliced ? 0 : run->whole_bytes;
    run->worst_bytes = bytes > run->worst_bytes ? bytes : run->worst_bytes;
}

/* --- what holds memory --- */

static bool is_in(const uint64_t *set, uint32_t root)
{
    return (set[root / 64] >> (root % 64) & 1) != 0;
}

static void put(uint64_t *set, uint32_t root, bool is_member)
{
    const uint64_t bit = UINT64_C(1) << (root % 64);
    set[root / 64] = is_member ? set[root / 64] | bit : set[root / 64] & ~bit;
}

static bool has_regions(const dunlin_simulation *run)
{
    return run->remat->n_phases > 1;
}

/* Is what a touch leaves retained beyond the region? */
static bool outlives_region(const dunlin_simulation *run, uint32_t touch)
{
    const dunlin_remat_touch *touches = run->remat->touches;
    for (uint32_t t = touch; has_regions(run) && t != DUNLIN_MEM_NONE; t = touches[t].next) {
        if (run->remat->steps[touches[t].position].phase != run->phase) {
            return true;
        }
        if (touches[t].interval != DUNLIN_MEM_NONE &&
            run->intervals[touches[t].interval] != DUNLIN_INTERVAL_RETAIN) {
            return false;
        }
    }
    return false;
}

static uint64_t bytes_of(const dunlin_simulation *run, uint32_t root)
{
    const dunlin_remat *remat = run->remat;
    return has_regions(run) && !is_in(remat->is_whole, root)
               ? dunlin__remat_local_bytes(remat, run->phase, root)
               : remat->roots[root].bytes;
}

static void begin(dunlin_simulation *run, uint32_t root, bool is_whole)
{
    dunlin_remat *remat = run->remat;
    put(remat->is_whole, root, is_whole);
    if (is_whole) {
        run->whole_bytes += bytes_of(run, root);
        return;
    }
    run->live_bytes += bytes_of(run, root);
    if (has_regions(run) && !is_in(remat->is_local, root)) {
        put(remat->is_local, root, true);
        remat->locals[run->n_locals++] = root;
    }
}

static void end(dunlin_simulation *run, uint32_t root)
{
    dunlin_remat *remat = run->remat;
    if (!is_in(remat->is_whole, root)) {
        run->live_bytes -= bytes_of(run, root);
    } else if (run->is_sliced) {
        run->dying_bytes += bytes_of(run, root);
    } else {
        run->whole_bytes -= bytes_of(run, root);
    }
    put(remat->is_whole, root, false);
}

/* May an output lie on the input that dies with it? Not where other slices still need that. */
static bool can_share(const dunlin_simulation *run, bool is_old_whole, bool is_new_whole)
{
    return is_old_whole == is_new_whole && !(run->is_sliced && is_old_whole);
}

/* Does a dropped root that was recomputed stay until its next use? */
static bool stays(const dunlin_simulation *run, uint32_t root)
{
    const uint32_t interval = dunlin__remat_interval_at(run->remat, root, run->position);
    return interval != DUNLIN_MEM_NONE && run->intervals[interval] != DUNLIN_INTERVAL_EAGER;
}

/* --- closures --- */

static void want(dunlin_remat *remat, uint32_t root, uint32_t *n_wanted)
{
    if (!is_in(remat->is_here, root) && remat->is_wanted[root] == 0) {
        remat->is_wanted[root] = 1;
        remat->n_pending[root] = 0;
        remat->wanted[(*n_wanted)++] = root;
    }
}

/* Where a closure is needed. */
typedef struct {
    const uint8_t *intervals; /* NULL: nothing is in the file */
    uint32_t position;
    uint32_t op;
} need;

/* Everything that the wanted roots need, and the ops that make it, in no order. */
static uint32_t collect(dunlin_remat *remat, uint32_t *n_wanted, const need *now, bool *is_valid)
{
    uint32_t n_closure = 0;
    for (uint32_t i = 0; i < *n_wanted; i++) {
        const dunlin_remat_root *root = &remat->roots[remat->wanted[i]];
        if (now->intervals != NULL &&
            dunlin__remat_is_out(remat, now->intervals, remat->wanted[i], now->position)) {
            continue; /* read back */
        }
        if (!root->may_drop || now->op >= root->deadline) {
            *is_valid = false;
        }
        for (uint32_t m = 0; m < root->n_makers; m++) {
            uint32_t position = remat->makers[root->first_maker + m];
            if (remat->is_in_closure[position] != 0) {
                continue;
            }
            remat->is_in_closure[position] = 1;
            remat->closure[n_closure++] = position;
            const dunlin_remat_step *step = &remat->steps[position];
            for (uint32_t t = step->first_touch; t < step->first_touch + step->n_touches; t++) {
                if (remat->touches[t].is_map_read) {
                    want(remat, remat->touches[t].root, n_wanted);
                    remat->n_pending[remat->touches[t].root]++;
                }
            }
        }
    }
    return n_closure;
}

static void forget(dunlin_remat *remat, uint32_t n_wanted, uint32_t n_closure)
{
    for (uint32_t i = 0; i < n_wanted; i++) {
        remat->is_wanted[remat->wanted[i]] = 0;
    }
    for (uint32_t i = 0; i < n_closure; i++) {
        remat->is_in_closure[remat->closure[i]] = 0;
    }
}

/* Closures are short: insertion sort. */
static void sort_positions(uint32_t *positions, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t held = positions[i];
        uint32_t j = i;
        for (; j > 0 && positions[j - 1] > held; j--) {
            positions[j] = positions[j - 1];
        }
        positions[j] = held;
    }
}

/* Will a root that is recomputed before an op be retained beyond the region? */
static bool will_be_whole(const dunlin_simulation *run, uint32_t root, const dunlin_remat_step *now)
{
    dunlin_remat *remat = run->remat;
    if (!has_regions(run)) {
        return false;
    }
    for (uint32_t t = now->first_touch; t < now->first_touch + now->n_touches; t++) {
        if (remat->touches[t].root == root) {
            return outlives_region(run, t);
        }
    }
    const uint32_t at = dunlin__remat_interval_at(remat, root, run->position);
    if (at == DUNLIN_MEM_NONE || run->intervals[at] == DUNLIN_INTERVAL_EAGER) {
        return false;
    }
    const dunlin_interval *interval = &remat->intervals[at];
    return remat->steps[interval->to].phase == run->phase
               ? outlives_region(run, interval->to_touch)
               : run->intervals[at] == DUNLIN_INTERVAL_LAZY;
}

/* Bytes that a recomputed output saves by lying on the input whose live range ends with it. */
static uint64_t shared_by_recompute(const dunlin_simulation *run, const dunlin_remat_step *step,
                                    const dunlin_remat_step *now)
{
    const dunlin_remat *remat = run->remat;
    uint32_t old = step->in_place_read;
    if (old == DUNLIN_MEM_NONE || is_in(remat->is_here, step->in_place_written) ||
        remat->is_wanted[old] == 0 || remat->n_pending[old] != 1 || stays(run, old) ||
        !can_share(run, is_in(remat->is_whole, old),
                   will_be_whole(run, step->in_place_written, now))) {
        return 0;
    }
    return bytes_of(run, old);
}

static void recompute_step(dunlin_simulation *run, uint32_t position, const dunlin_remat_step *now)
{
    dunlin_remat *remat = run->remat;
    const dunlin_remat_step *step = &remat->steps[position];
    const dunlin_remat_phase *phase = &remat->phases[run->phase];
    const dunlin_remat_touch *touches = &remat->touches[step->first_touch];
    uint64_t shared_bytes = shared_by_recompute(run, step, now);
    uint64_t short_bytes = 0; /* outputs that no op waits for */
    for (uint32_t t = 0; t < step->n_touches; t++) {
        uint32_t r = touches[t].root;
        if (run->is_asked != NULL) {
            put(run->is_asked, r, true);
        }
        if (!touches[t].is_written) {
            continue;
        }
        if (remat->is_wanted[r] != 0) {
            if (remat->makers[remat->roots[r].first_maker] == position) {
                begin(run, r, will_be_whole(run, r, now));
            }
        } else if (!is_in(remat->is_here, r) && stays(run, r)) {
            put(remat->is_here, r, true);
            begin(run, r, will_be_whole(run, r, now));
        } else if (!is_in(remat->is_here, r)) {
            short_bytes += bytes_of(run, r);
        }
    }
    reach(run, run->live_bytes + short_bytes - shared_bytes +
                   dunlin__remat_workspace_bytes(remat, run->phase, step) + now->fixed_bytes);
    run->so_far.cost_ns += phase->n_slices * step->slice_ns + step->batch_ns;
    if (run->does_log && run->so_far.n_recompute < remat->n_recompute_max) {
        remat->recompute[run->so_far.n_recompute] =
            (dunlin_recompute){.before = now->op, .op = step->op};
    }
    run->so_far.n_recompute++;
    for (uint32_t t = 0; t < step->n_touches; t++) {
        uint32_t r = touches[t].root;
        if (touches[t].is_map_read && remat->is_wanted[r] != 0 && --remat->n_pending[r] == 0 &&
            !stays(run, r)) {
            end(run, r);
        }
    }
    remat->n_work++;
}

/* --- swaps --- */

uint64_t dunlin__remat_swap_ns(const dunlin_remat *remat, uint32_t swap_op)
{
    const dunlin_mem_variant *variant = &remat->graph->ops[swap_op].variants[0];
    return variant->cost_fixed_ns + remat->batch * variant->cost_sample_ns;
}

/* One op more that writes out or reads back, before an op of the graph. */
static void run_swap(dunlin_simulation *run, uint32_t swap_op, uint32_t before,
                     uint64_t fixed_bytes)
{
    const dunlin_remat *remat = run->remat;
    const dunlin_mem_variant *variant = &remat->graph->ops[swap_op].variants[0];
    reach(run, run->live_bytes + dunlin__workspace_bytes(variant, remat->batch) + fixed_bytes);
    run->so_far.cost_ns += dunlin__remat_swap_ns(remat, swap_op);
    if (run->does_log && run->so_far.n_recompute < remat->n_recompute_max) {
        remat->recompute[run->so_far.n_recompute] =
            (dunlin_recompute){.before = before, .op = swap_op};
    }
    run->so_far.n_recompute++;
}

/* Reads back what is wanted and lies in the file. */
static void read_back(dunlin_simulation *run, const dunlin_remat_step *now, uint32_t n_wanted)
{
    const dunlin_remat *remat = run->remat;
    for (uint32_t i = 0; i < n_wanted; i++) {
        const uint32_t r = remat->wanted[i];
        if (dunlin__remat_is_out(remat, run->intervals, r, run->position)) {
            begin(run, r, false);
            run_swap(run, remat->roots[r].swap_out + 1, now->op, now->fixed_bytes);
        }
    }
}

/* Writes out what an op touches for the last time before a swap: before it runs if it only reads
 * that, else after it. */
static void write_out(dunlin_simulation *run, const dunlin_remat_step *step, bool is_behind)
{
    const dunlin_remat *remat = run->remat;
    for (uint32_t t = step->first_touch; t < step->first_touch + step->n_touches; t++) {
        const dunlin_remat_touch *touch = &remat->touches[t];
        if (touch->interval != DUNLIN_MEM_NONE &&
            run->intervals[touch->interval] == DUNLIN_INTERVAL_SWAP &&
            touch->is_written == is_behind) {
            run_swap(run, remat->roots[touch->root].swap_out, step->op + (is_behind ? 1 : 0),
                     step->fixed_bytes);
        }
    }
}

/* Recomputes what the op at a position reads and is not resident. */
static void make_missing(dunlin_simulation *run, const dunlin_remat_step *now)
{
    dunlin_remat *remat = run->remat;
    const dunlin_remat_touch *touches = &remat->touches[now->first_touch];
    uint32_t n_wanted = 0;
    for (uint32_t t = 0; t < now->n_touches; t++) {
        if (touches[t].is_read && !is_in(remat->is_here, touches[t].root)) {
            want(remat, touches[t].root, &n_wanted);
        }
    }
    if (n_wanted == 0) {
        return;
    }
    uint32_t n_direct = n_wanted;
    const need here = {.intervals = run->intervals, .position = run->position, .op = now->op};
    uint32_t n_closure = collect(remat, &n_wanted, &here, &run->so_far.is_valid);
    for (uint32_t i = 0; i < n_direct; i++) {
        remat->n_pending[remat->wanted[i]]++; /* the op itself */
    }
    read_back(run, now, n_wanted);
    sort_positions(remat->closure, n_closure);
    for (uint32_t i = 0; i < n_closure; i++) {
        recompute_step(run, remat->closure[i], now);
    }
    for (uint32_t i = 0; i < n_wanted; i++) {
        uint32_t r = remat->wanted[i];
        put(remat->is_here, r, i < n_direct || stays(run, r));
    }
    forget(remat, n_wanted, n_closure);
}

/* --- positions and regions --- */

static void leave(dunlin_simulation *run, const dunlin_remat_touch *touch)
{
    dunlin_remat *remat = run->remat;
    uint32_t r = touch->root;
    bool is_dropped = touch->is_last || (touch->interval != DUNLIN_MEM_NONE &&
                                         run->intervals[touch->interval] != DUNLIN_INTERVAL_RETAIN);
    if (is_dropped && is_in(remat->is_here, r)) {
        put(remat->is_here, r, false);
        end(run, r);
    }
}

static void run_position(dunlin_simulation *run, uint32_t position)
{
    dunlin_remat *remat = run->remat;
    const dunlin_remat_step *step = &remat->steps[position];
    const dunlin_remat_touch *touches = &remat->touches[step->first_touch];
    run->worst_bytes = 0;
    run->position = position;
    make_missing(run, step);
    write_out(run, step, false);
    uint64_t shared_bytes = 0;
    bool is_born = false;
    bool is_old_whole = false;
    for (uint32_t t = 0; t < step->n_touches; t++) {
        uint32_t r = touches[t].root;
        if (!is_in(remat->is_here, r) && !touches[t].is_virtual) {
            put(remat->is_here, r, true);
            begin(run, r, outlives_region(run, step->first_touch + t));
            is_born |= r == step->in_place_written;
        }
        bool dies =
            touches[t].is_last || (touches[t].interval != DUNLIN_MEM_NONE &&
                                   run->intervals[touches[t].interval] != DUNLIN_INTERVAL_RETAIN);
        if (r == step->in_place_read && dies && !touches[t].is_written) {
            shared_bytes = bytes_of(run, r);
            is_old_whole = is_in(remat->is_whole, r);
        }
    }
    if (!is_born || !can_share(run, is_old_whole, is_in(remat->is_whole, step->in_place_written))) {
        shared_bytes = 0;
    }
    reach(run, run->live_bytes - shared_bytes +
                   dunlin__remat_workspace_bytes(remat, run->phase, step) + step->fixed_bytes);
    write_out(run, step, true);
    for (uint32_t t = 0; t < step->n_touches; t++) {
        leave(run, &touches[t]);
    }
    if (step->after_bytes != 0 && !has_regions(run)) {
        reach(run, run->live_bytes + step->after_bytes);
    }
    run->sums[position] = run->worst_bytes;
    remat->n_work++;
}

static void begin_phase(dunlin_simulation *run, uint32_t phase)
{
    run->phase = phase;
    run->is_sliced = has_regions(run) && run->remat->phases[phase].n_slices > 1;
}

/* What holds slices is gone; FIXED ops follow. */
static void end_phase(dunlin_simulation *run)
{
    dunlin_remat *remat = run->remat;
    const dunlin_remat_phase *phase = &remat->phases[run->phase];
    const uint64_t whole_bytes = run->is_sliced ? run->whole_bytes : 0;
    for (uint32_t p = phase->first; p < phase->end; p++) {
        run->sums[p] += whole_bytes;
    }
    run->whole_bytes -= run->dying_bytes;
    run->dying_bytes = 0;
    run->live_bytes = 0;
    for (uint32_t i = 0; i < run->n_locals; i++) {
        const uint32_t r = remat->locals[i];
        put(remat->is_local, r, false);
        put(remat->is_here, r, is_in(remat->is_here, r) && is_in(remat->is_whole, r));
    }
    run->n_locals = 0;
    const uint64_t after = run->whole_bytes + remat->steps[phase->end - 1].after_bytes;
    if (after > run->sums[phase->end - 1]) {
        run->sums[phase->end - 1] = after;
    }
}

void dunlin__simulation_add_up(const uint64_t *sums, uint64_t more_bytes, uint32_t first,
                               uint32_t end, uint64_t limit_bytes, dunlin_remat_result *result)
{
    for (uint32_t p = first; p < end; p++) {
        const uint64_t bytes = sums[p] + more_bytes;
        if (bytes > result->peak_bytes) {
            result->peak_bytes = bytes;
            result->peak_at = p;
        }
        if (bytes > limit_bytes) {
            result->excess_bytes += bytes - limit_bytes;
            result->first_over = result->first_over == DUNLIN_MEM_NONE ? p : result->first_over;
        }
    }
}

void dunlin__simulation_run_to(dunlin_simulation *run, uint32_t mark, uint32_t position)
{
    const dunlin_remat *remat = run->remat;
    const uint32_t first = remat->marks[mark].first;
    begin_phase(run, remat->steps[first].phase);
    for (uint32_t p = first; p < position; p++) {
        run_position(run, p);
    }
}

void dunlin__simulation_run(dunlin_simulation *run, uint32_t mark)
{
    dunlin_remat *remat = run->remat;
    const uint32_t first = remat->marks[mark].first;
    const uint32_t end = remat->marks[mark + 1].first;
    dunlin__simulation_run_to(run, mark, end);
    if (has_regions(run)) {
        end_phase(run);
    }
    for (uint32_t p = first; p < end; p++) {
        run->sums[p] += remat->steps[p].penalty_bytes;
    }
    dunlin__simulation_add_up(run->sums, 0, first, end, run->limit_bytes, &run->so_far);
}

uint64_t dunlin__remat_recompute_cost(dunlin_remat *remat, uint32_t root)
{
    uint32_t n_wanted = 0;
    bool is_valid = true;
    uint64_t cost = 0;
    want(remat, root, &n_wanted);
    if (n_wanted == 0) { /* it is resident: what would it take if it were not? */
        remat->is_wanted[root] = 1;
        remat->wanted[n_wanted++] = root;
    }
    const need here = {.intervals = remat->stood_intervals, .position = remat->stood_at};
    uint32_t n_closure = collect(remat, &n_wanted, &here, &is_valid);
    for (uint32_t i = 0; i < n_closure; i++) {
        cost += remat->steps[remat->closure[i]].cost_ns;
    }
    forget(remat, n_wanted, n_closure);
    return cost;
}
