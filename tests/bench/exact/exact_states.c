/*
 * exact_states.c - the least time of a small step within a limit on live bytes, by A* over what is
 * held before each first run. search.py writes the step down and reads the answer.
 *
 * Invariant: what is dropped is dropped right after an op that touches it: to hold it longer only
 * takes room. So a state is a stage (the op that runs for the first time next) and the values held
 * until they are touched again, and a move is one op, with any of what it touches dropped. The
 * bound of what is still to come: each value that a first run will read and that is not held has to
 * be recomputed, with all that this needs; and at each later first run no more than the limit is
 * held, so that everything else that is read after it has to be recomputed as well. The search ends
 * with a state of the last stage whose cost no other's bound is below.
 */
#include "state_set.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPS = 128, MAX_VALUES = 128 };
#define NONE UINT32_MAX

typedef struct {
    uint64_t cost, workspace;
    int64_t recompute_last;  /* the last op before which the map part may run again; -1: none */
    set reads[2], writes[2]; /* of the first run, of a recomputation */
    bool shares[2];          /* `fresh` may lie on `dying`, in such a run */
    uint32_t fresh, dying;
    uint64_t share_bytes;
} op_row;

typedef struct {
    set values;
    uint64_t bytes;
} buffer_row;

/* At a first run: what may be dropped there, the cheapest for its bytes first, and how much. */
typedef struct {
    uint32_t value[MAX_VALUES];
    uint32_t n;
    int64_t room_bytes; /* beside what the op touches and what cannot be recomputed */
} tight_row;

typedef struct {
    set held;
    uint64_t cost;
    uint32_t parent;
    uint16_t op, stage;
} state_row;

typedef struct {
    uint64_t bound;
    uint32_t state;
    uint64_t cost; /* of the state then: it is out of date if that has got less */
} queue_row;

static uint32_t n_values, n_ops, n_buffers;
static uint64_t limit_bytes, upper_cost, max_states, unit_cost;
static op_row ops[MAX_OPS];
static buffer_row buffers[MAX_VALUES];
static set wanted[MAX_OPS + 1], needed[MAX_OPS + 1];
static uint32_t writer_of[MAX_VALUES]; /* NONE: it cannot be recomputed */
static double share_bytes_of[MAX_VALUES];
static double share_cost_of[MAX_VALUES];
static tight_row tight[MAX_OPS];

static state_row *states;
static uint32_t n_states, n_slots, *slots;
static queue_row *queue;
static size_t n_queue, queue_room;

static uint64_t bytes_of(set held)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < n_buffers; b++) {
        bytes += is_empty(both(buffers[b].values, held)) ? 0 : buffers[b].bytes;
    }
    return bytes;
}

/* --- the bound --- */

/* Before which stages something may be read that is made before them. */
static void find_needed(void)
{
    set made[MAX_OPS + 1];
    memset(made, 0, sizeof made);
    for (uint32_t i = 0; i < n_ops; i++) {
        made[i + 1] = join(made[i], ops[i].writes[0]);
    }
    memset(needed, 0, sizeof needed);
    for (uint32_t i = n_ops; i > 0; i--) {
        needed[i - 1] = join(needed[i], ops[i - 1].reads[0]);
    }
    for (uint32_t i = 0; i <= n_ops; i++) {
        needed[i] = both(needed[i], made[i]);
    }
}

/* A part of a buffer has its share of the bytes, what one op writes its share of the cost. */
static void find_shares(void)
{
    for (uint32_t v = 0; v < n_values; v++) {
        for (uint32_t b = 0; b < n_buffers; b++) {
            if (has(&buffers[b].values, v)) {
                const int n = __builtin_popcountll(buffers[b].values.word[0]) +
                              __builtin_popcountll(buffers[b].values.word[1]);
                share_bytes_of[v] = (double)buffers[b].bytes / n;
            }
        }
        if (writer_of[v] != NONE) {
            const set *written = &ops[writer_of[v]].writes[1];
            const int n =
                __builtin_popcountll(written->word[0]) + __builtin_popcountll(written->word[1]);
            share_cost_of[v] = (double)ops[writer_of[v]].cost / n;
        }
    }
}

static void find_tight(uint32_t stage)
{
    tight_row *at = &tight[stage];
    const op_row *op = &ops[stage];
    set forced = join(op->reads[0], op->writes[0]);
    set free = {{0}};
    for (set left = without(needed[stage + 1], forced); !is_empty(left);
         left = without_lowest(left)) {
        const uint32_t v = lowest(left);
        const bool may = writer_of[v] != NONE && writer_of[v] < stage &&
                         ops[writer_of[v]].recompute_last > (int64_t)stage;
        put(may ? &free : &forced, v);
    }
    at->room_bytes = (int64_t)limit_bytes - (int64_t)op->workspace - (int64_t)bytes_of(forced) +
                     (op->shares[0] ? (int64_t)op->share_bytes : 0);
    for (; !is_empty(free); free = without_lowest(free)) {
        const uint32_t v = lowest(free);
        bool is_beside = false; /* the buffer is there in any case */
        for (uint32_t b = 0; b < n_buffers; b++) {
            is_beside = is_beside ||
                        (has(&buffers[b].values, v) && !is_empty(both(buffers[b].values, forced)));
        }
        if (is_beside) {
            continue;
        }
        uint32_t k = at->n++;
        for (; k > 0 && share_cost_of[at->value[k - 1]] * share_bytes_of[v] >
                            share_cost_of[v] * share_bytes_of[at->value[k - 1]];
             k--) {
            at->value[k] = at->value[k - 1];
        }
        at->value[k] = v;
    }
}

/* The least cost of what has to be dropped at a first run and is read after it; what is missing
 * already is counted elsewhere. */
static double tight_cost(const tight_row *at, const set *missing)
{
    double over = -(double)at->room_bytes;
    for (uint32_t k = 0; k < at->n; k++) {
        over += has(missing, at->value[k]) ? 0.0 : share_bytes_of[at->value[k]];
    }
    double cost = 0.0;
    for (uint32_t k = 0; k < at->n && over > 0.0; k++) {
        const uint32_t v = at->value[k];
        if (has(missing, v)) {
            continue;
        }
        const double part = over < share_bytes_of[v] ? over / share_bytes_of[v] : 1.0;
        cost += part * share_cost_of[v];
        over -= share_bytes_of[v];
    }
    return over > 0.5 ? 1e18 : cost;
}

/* The least cost from a state on, without the first runs; UINT64_MAX: there is no way on. */
static uint64_t bound_from(uint32_t stage, set held)
{
    set missing = without(needed[stage], held);
    bool is_recomputed[MAX_OPS] = {false};
    uint64_t cost = 0;
    for (set left = missing; !is_empty(left);) {
        const uint32_t v = lowest(left);
        const uint32_t op = writer_of[v];
        left = without_lowest(left);
        if (op == NONE || ops[op].recompute_last < (int64_t)stage) {
            return UINT64_MAX;
        }
        if (is_recomputed[op]) {
            continue;
        }
        is_recomputed[op] = true;
        cost += ops[op].cost;
        const set more = without(without(ops[op].reads[1], held), missing);
        left = join(left, more);
        missing = join(missing, more);
    }
    for (uint32_t v = 0; v < n_values; v++) {
        if (writer_of[v] != NONE && is_recomputed[writer_of[v]]) {
            put(&missing, v);
        }
    }
    double most = 0.0;
    for (uint32_t s = stage; s < n_ops; s++) {
        const double more = tight_cost(&tight[s], &missing);
        most = more > most ? more : most;
    }
    if (most > 1e17) {
        return UINT64_MAX;
    }
    const uint64_t whole = cost + (uint64_t)(most * (1.0 - 1e-12));
    return (whole + unit_cost - 1) / unit_cost * unit_cost; /* costs are multiples of it */
}

/* --- the queue and the table --- */

static bool comes_first(const queue_row *a, const queue_row *b)
{
    if (a->bound != b->bound) {
        return a->bound < b->bound;
    }
    return states[a->state].stage > states[b->state].stage;
}

static void push(queue_row row)
{
    if (n_queue == queue_room) {
        queue_room = queue_room == 0 ? 1 << 16 : 2 * queue_room;
        queue = realloc(queue, queue_room * sizeof *queue);
        if (queue == NULL) {
            abort();
        }
    }
    size_t at = n_queue++;
    for (; at > 0 && comes_first(&row, &queue[(at - 1) / 2]); at = (at - 1) / 2) {
        queue[at] = queue[(at - 1) / 2];
    }
    queue[at] = row;
}

static queue_row pop(void)
{
    const queue_row first = queue[0];
    const queue_row last = queue[--n_queue];
    size_t at = 0;
    for (;;) {
        size_t next = 2 * at + 1;
        if (next >= n_queue) {
            break;
        }
        next += next + 1 < n_queue && comes_first(&queue[next + 1], &queue[next]);
        if (!comes_first(&queue[next], &last)) {
            break;
        }
        queue[at] = queue[next];
        at = next;
    }
    queue[at] = last;
    return first;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* The slot of a state, or of the room for it. */
static uint32_t *find_slot(uint32_t stage, set held)
{
    uint64_t at = mix(held.word[0] + mix(held.word[1] + mix(stage + 1)));
    for (;; at++) {
        uint32_t *slot = &slots[at & (n_slots - 1)];
        if (*slot == NONE ||
            (states[*slot].stage == stage && states[*slot].held.word[0] == held.word[0] &&
             states[*slot].held.word[1] == held.word[1])) {
            return slot;
        }
    }
}

static uint64_t rest_cost[MAX_OPS + 1]; /* of the first runs from a stage on */

static void reach(uint32_t stage, set held, uint64_t cost, uint32_t parent, uint32_t op)
{
    uint32_t *slot = find_slot(stage, held);
    if (*slot != NONE && states[*slot].cost <= cost) {
        return;
    }
    const uint64_t more = bound_from(stage, held);
    if (more == UINT64_MAX || cost + rest_cost[stage] + more >= upper_cost) {
        return;
    }
    if (*slot == NONE) {
        if (n_states == max_states) {
            return;
        }
        *slot = n_states++;
    }
    states[*slot] = (state_row){
        .held = held, .cost = cost, .parent = parent, .op = (uint16_t)op, .stage = (uint16_t)stage};
    push((queue_row){.bound = cost + rest_cost[stage] + more, .state = *slot, .cost = cost});
}

/* --- moves --- */

/* The op runs, for the first time or again, and any of what it touches is dropped. */
static void run_op(uint32_t from, uint32_t op_index, int again)
{
    const op_row *op = &ops[op_index];
    const state_row at = states[from];
    const uint32_t to = at.stage + (again == 0 ? 1U : 0U);
    if (!is_empty(without(op->reads[again], at.held))) {
        return;
    }
    const set during = join(at.held, op->writes[again]);
    const uint64_t bytes = bytes_of(during) + op->workspace;
    const set kept = both(during, wanted[to]);
    const set touched = both(join(op->reads[again], op->writes[again]), kept);
    const bool can_share = op->shares[again] && has(&op->writes[again], op->fresh);
    if (bytes > limit_bytes && (!can_share || bytes - op->share_bytes > limit_bytes)) {
        return;
    }
    uint32_t bits[MAX_VALUES];
    uint32_t n = 0;
    for (set left = touched; !is_empty(left); left = without_lowest(left)) {
        bits[n++] = lowest(left);
    }
    for (uint64_t choice = 0; choice < UINT64_C(1) << n; choice++) {
        set held = kept;
        for (uint32_t i = 0; i < n; i++) {
            if ((choice >> i & 1) != 0) {
                held.word[bits[i] / 64] &= ~(UINT64_C(1) << (bits[i] % 64));
            }
        }
        if (bytes > limit_bytes && has(&held, op->dying)) {
            continue;
        }
        reach(to, held, at.cost + op->cost, from, op_index);
    }
}

static uint32_t search(uint64_t *out_bound)
{
    reach(0, (set){{0}}, 0, NONE, 0);
    *out_bound = 0;
    while (n_queue > 0 && n_states < max_states) {
        const queue_row next = pop();
        const state_row at = states[next.state];
        if (at.cost < next.cost) {
            continue;
        }
        *out_bound = next.bound;
        if (at.stage == n_ops) {
            return next.state;
        }
        run_op(next.state, at.stage, 0);
        for (uint32_t i = 0; i < at.stage; i++) {
            if (ops[i].recompute_last >= (int64_t)at.stage &&
                !is_empty(without(ops[i].writes[1], at.held))) {
                run_op(next.state, i, 1);
            }
        }
    }
    return NONE;
}

/* --- what comes in, what goes out --- */

static uint64_t number(void)
{
    char text[32];
    if (scanf("%31s", text) != 1) {
        (void)fputs("exact_states: a step as search.py writes it is expected\n", stderr);
        exit(2);
    }
    return strtoull(text, NULL, 10);
}

static set read_set(void)
{
    const uint64_t low = number();
    return (set){{low, number()}};
}

static uint64_t common(uint64_t a, uint64_t b)
{
    return b == 0 ? a : common(b, a % b);
}

static void read_step(void)
{
    limit_bytes = number();
    upper_cost = number();
    max_states = number();
    n_values = (uint32_t)number();
    n_ops = (uint32_t)number();
    n_buffers = (uint32_t)number();
    if (n_values > MAX_VALUES || n_ops > MAX_OPS || n_buffers > MAX_VALUES) {
        (void)fprintf(stderr, "exact_states: %u values, %u ops; there may be %d\n",
                      (unsigned)n_values, (unsigned)n_ops, MAX_OPS);
        exit(2);
    }
    for (uint32_t b = 0; b < n_buffers; b++) {
        buffers[b].bytes = number();
        buffers[b].values = read_set();
    }
    for (uint32_t v = 0; v < n_values; v++) {
        writer_of[v] = (uint32_t)number();
    }
    for (uint32_t i = 0; i < n_ops; i++) {
        op_row *op = &ops[i];
        op->cost = number();
        unit_cost = common(op->cost, unit_cost);
        op->workspace = number();
        op->recompute_last = (int64_t)number() - 1;
        op->shares[0] = number() != 0;
        op->shares[1] = number() != 0;
        op->fresh = (uint32_t)number();
        op->dying = (uint32_t)number();
        op->share_bytes = number();
        for (int again = 0; again < 2; again++) {
            op->reads[again] = read_set();
            op->writes[again] = read_set();
        }
    }
    for (uint32_t i = 0; i <= n_ops; i++) {
        wanted[i] = read_set();
    }
}

int main(void)
{
    read_step();
    unit_cost = unit_cost == 0 ? 1 : unit_cost;
    for (uint32_t i = n_ops; i > 0; i--) {
        rest_cost[i - 1] = rest_cost[i] + ops[i - 1].cost;
    }
    find_needed();
    find_shares();
    for (uint32_t i = 0; i < n_ops; i++) {
        find_tight(i);
    }
    n_slots = 1 << 10;
    while (n_slots < 2 * max_states) {
        n_slots *= 2;
    }
    states = max_states < SIZE_MAX ? calloc((size_t)max_states + 1, sizeof *states) : NULL;
    slots = calloc(n_slots, sizeof *slots);
    if (states == NULL || slots == NULL) {
        abort();
    }
    memset(slots, 0xff, n_slots * sizeof *slots);
    uint64_t bound = 0;
    const uint32_t last = search(&bound);
    (void)printf("{\"states\": %" PRIu32 ", \"bound\": %" PRIu64 ", \"is_complete\": %s, ",
                 n_states, bound, n_states < max_states ? "true" : "false");
    (void)printf("\"backwards\": [");
    for (uint32_t s = last; s != NONE && states[s].parent != NONE; s = states[s].parent) {
        (void)printf("%s%d", s == last ? "" : ", ", states[s].op);
    }
    (void)printf("], \"cost\": %" PRId64 "}\n", last == NONE ? -1 : (int64_t)states[last].cost);
    free(slots);
    free(states);
    free(queue);
    return 0;
}
