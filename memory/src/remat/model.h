/*
 * model.h - rematerialisation: which tensors are retained from one use to the next, and which are
 * dropped and recomputed.
 *
 * The decision is taken for one retention interval at a time (Bartan et al., "MOCCASIN", ICML
 * 2023): an interval lies between two consecutive touches of a batched tensor, once all of it is
 * written. The meaning of a choice is found by simulating the step: before an op, whatever it reads
 * and is not resident is recomputed, with all that this needs (its closure), in the order of the
 * graph. A step that is cut into regions runs each of them slice by slice. What is retained from
 * one region to another holds the whole batch; everything else holds one slice and is gone at the
 * region's end.
 */
#ifndef DUNLIN_MEM_REMAT_H
#define DUNLIN_MEM_REMAT_H

#include "schedule/live_ranges.h"
#include "schedule/regions.h"

typedef enum dunlin_interval_state {
    DUNLIN_INTERVAL_RETAIN = 0, /* it is retained */
    DUNLIN_INTERVAL_LAZY,  /* dropped; once recomputed for another, it stays until its next use */
    DUNLIN_INTERVAL_SHORT, /* the same, but no longer than to the end of the region */
    DUNLIN_INTERVAL_EAGER, /* dropped; recomputed for another, it is dropped again at once */
    DUNLIN_INTERVAL_SWAP   /* written out; read back when it is needed, and then it stays. For the
                         interval   of a root that is its swap_interval, in a step that is not cut */
} dunlin_interval_state;

typedef struct dunlin_interval {
    uint32_t root; /* into roots */
    uint32_t from; /* positions in the body */
    uint32_t to;
    uint32_t to_touch;
    bool is_extension; /* after the last touch: not retained unless that pays */
} dunlin_interval;

/*
 * Where the step is cut, what is computed from a root may have to be recomputed after the root's
 * last touch: so many intervals follow that touch, to the last touch of what is computed from the
 * root, of what is computed from that, and so on.
 */
#define DUNLIN_MAX_EXTENSIONS 3

/* A batched tensor that is no part of another. */
typedef struct dunlin_remat_root {
    uint32_t tensor;
    uint64_t sample_bytes;
    uint64_t slice_bytes; /* beside those: of a slice as a whole */
    uint64_t bytes;       /* of a slice; of the batch where the step is cut into regions */
    uint32_t first_maker, n_makers; /* into makers: positions of the ops that write it, ascending */
    bool may_drop;
    uint32_t extends_to[DUNLIN_MAX_EXTENSIONS]; /* positions, ascending; NONE: no more */
    uint32_t extension[DUNLIN_MAX_EXTENSIONS];  /* intervals, or NONE */
    uint32_t last_position;                     /* of the last touch */
    uint32_t
        deadline; /* no maker may run again at or after this op of the graph: its weights change */
    uint32_t swap_out;      /* op that writes it out, before the one that reads it back; or NONE */
    uint32_t swap_interval; /* from the forward to the backward pass; NONE: it cannot be swapped */
} dunlin_remat_root;

/* One root touched by one op. */
typedef struct dunlin_remat_touch {
    uint32_t root;
    uint32_t position;
    uint32_t interval; /* that begins here, or NONE */
    uint32_t next;     /* touch of the same root, or NONE */
    uint32_t prev;
    bool is_last;
    bool is_virtual;  /* not touched: it may be retained until here for what is computed from it */
    bool is_read;     /* by any part */
    bool is_map_read; /* by the map part: recomputing needs it */
    bool is_written;  /* by the map part */
} dunlin_remat_touch;

/* An op of the body: everything but FIXED ops. */
typedef struct dunlin_remat_step {
    uint32_t op;
    uint32_t phase;
    uint32_t mark; /* the last one at or before it */
    uint32_t first_touch, n_touches;
    uint64_t workspace_fixed_bytes, workspace_sample_bytes;
    uint64_t slice_ns;    /* of its map part for each slice, */
    uint64_t batch_ns;    /* for all samples of the batch, */
    uint64_t cost_ns;     /* in slices as they are where the op stands: both */
    uint64_t fixed_bytes; /* fixed tensors alive while it runs */
    uint64_t
        after_bytes; /* the most that FIXED ops between it and the next need beside the roots */
    uint64_t penalty_bytes; /* taken off the limit here: packing needs more than the live bytes */
    uint32_t in_place_written, in_place_read; /* roots, or NONE */
} dunlin_remat_step;

/* Positions that run in one loop: the whole body, or a region. */
typedef struct dunlin_remat_phase {
    uint32_t first; /* positions; one past the last */
    uint32_t end;
    uint64_t slice_samples;
    uint64_t n_slices;
} dunlin_remat_phase;

/* Bytes and time of a choice of intervals. */
typedef struct dunlin_remat_result {
    bool is_valid;         /* false: something would be recomputed after its weights have changed */
    uint64_t cost_ns;      /* of the recomputed map parts alone */
    uint64_t peak_bytes;   /* with penalties */
    uint64_t excess_bytes; /* above the limit, summed over the positions */
    uint32_t first_over;   /* position, or NONE */
    uint32_t peak_at;      /* position */
    uint32_t n_recompute;
} dunlin_remat_result;

/* The last whole run: its result before some of the positions (the first of each region, or every
 * few of a step that is not cut), and what follows up to the next of them and after it. */
typedef struct dunlin_remat_mark {
    uint32_t first; /* position */
    uint64_t bytes; /* of the roots that are there */
    dunlin_remat_result so_far;
    uint64_t peak_bytes;
    uint32_t peak_at;
    bool is_valid;
    bool is_rest_valid;
    uint64_t rest_peak_bytes;
    uint32_t rest_peak_at, rest_first_over;
} dunlin_remat_mark;

typedef struct dunlin_remat {
    const dunlin_mem_graph *graph;
    dunlin_alloc alloc;
    const dunlin_regions *regions; /* NULL: the step is not cut */
    dunlin_remat_phase *phases;
    uint32_t n_phases;
    uint64_t batch;
    dunlin_remat_step *steps;
    uint32_t n_steps;
    dunlin_remat_root *roots;
    uint32_t n_roots;
    dunlin_remat_touch *touches;
    uint32_t n_touches;
    dunlin_interval *intervals;
    uint32_t n_intervals;
    uint32_t n_touches_max; /* room in touches, intervals and makers */
    uint32_t *makers;
    uint32_t n_makers;
    /* scratch of a simulation */
    uint32_t n_words;    /* of a set of roots */
    uint64_t *is_here;   /* set of roots: resident */
    uint64_t *is_whole;  /* the same: as it is here, it holds the batch and outlives the region */
    uint64_t *is_local;  /* the same: listed in `locals` */
    uint32_t *locals;    /* roots that the current region has made, but not whole */
    uint8_t *is_wanted;  /* by root: in the current closure */
    uint32_t *n_pending; /* by root: reads still to come in the current closure */
    uint32_t *touch_now; /* by root: where its interval was looked up last */
    uint8_t *is_in_closure;      /* by position */
    uint32_t *closure;           /* positions */
    uint32_t *wanted;            /* roots */
    uint64_t *sums;              /* by position: bytes at its worst moment, penalty included */
    uint64_t *fixed_sums;        /* by op of the graph: bytes of fixed tensors alive */
    dunlin_recompute *recompute; /* of the last run that asked for it */
    uint32_t n_recompute_max;
    /* the last whole run: a choice that differs in a few intervals is simulated only where it
     * differs */
    bool has_base;
    uint64_t base_limit_bytes;
    dunlin_remat_result base;
    uint8_t *base_intervals;
    uint64_t *try_sums; /* by position: as `sums`, of the current run */
    uint32_t n_marks, n_marks_max;
    dunlin_remat_mark *marks; /* and one at the end */
    uint64_t *mark_is_here;   /* by mark: a set of roots */
    uint64_t *is_involved;    /* the same: those on which the positions up to the next depend, */
    uint64_t *is_asked;       /* and of them those that recomputed ops there ask about */
    uint64_t *is_other; /* set of roots: resident in the current run or in the base, not in both */
    uint64_t n_work;    /* ops simulated so far: what searches count */
    const uint8_t *stood_intervals; /* of the last dunlin__remat_stand(), while they are there */
    uint32_t stood_at;
} dunlin_remat;

/* Makes the model of a graph that has passed its check. `live` knows its roots. `regions` may be
 * NULL and must outlive the model. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__remat_open(const dunlin_mem_graph *graph,
                                                  const dunlin_live *live,
                                                  const dunlin_regions *regions,
                                                  const dunlin_alloc *alloc,
                                                  dunlin_remat *out_remat, dunlin_error *error);
void dunlin__remat_close(dunlin_remat *remat);

/* Sets bytes and costs for a batch in slices of so many samples, with these variants (one an op).
 * Penalties are gone. */
void dunlin__remat_set_slice(dunlin_remat *remat, const dunlin_live *live, uint64_t batch,
                             uint64_t slice_samples, const uint8_t *variants);

/* The same where the step is cut into regions, each in slices of its own (one size a region). */
void dunlin__remat_set_slices(dunlin_remat *remat, const dunlin_live *live, uint64_t batch,
                              const uint64_t *slices, const uint8_t *variants);

/* Bytes of a root in a slice of a phase, and of an op's workspace there: asked for at each step of
 * each run. */
static inline uint64_t dunlin__remat_local_bytes(const dunlin_remat *remat, uint32_t phase,
                                                 uint32_t root)
{
    const dunlin_remat_root *at = &remat->roots[root];
    const uint64_t bytes = remat->phases[phase].slice_samples * at->sample_bytes + at->slice_bytes;
    return (bytes + DUNLIN_MEM_ALIGN - 1) / DUNLIN_MEM_ALIGN * DUNLIN_MEM_ALIGN;
}

static inline uint64_t dunlin__remat_workspace_bytes(const dunlin_remat *remat, uint32_t phase,
                                                     const dunlin_remat_step *step)
{
    const uint64_t bytes = remat->phases[phase].slice_samples * step->workspace_sample_bytes +
                           step->workspace_fixed_bytes;
    return (bytes + DUNLIN_MEM_ALIGN - 1) / DUNLIN_MEM_ALIGN * DUNLIN_MEM_ALIGN;
}

/* The state that holds less memory; EAGER has none. In a step without regions SHORT says nothing.
 */
uint8_t dunlin__remat_lower(const dunlin_remat *remat, uint8_t state);

/* Whether a root retained over the interval holds memory at a position: in a region that runs slice
 * by slice also before it begins there, and after it ends. Called for every interval, very often.
 */
static inline bool dunlin__remat_is_over(const dunlin_remat *remat, const dunlin_interval *interval,
                                         uint32_t position)
{
    const dunlin_remat_phase *phase = &remat->phases[remat->steps[position].phase];
    const bool begins_here = phase->first <= interval->from && interval->from < phase->end;
    const bool ends_here = phase->first <= interval->to && interval->to < phase->end;
    return (begins_here != ends_here && phase->n_slices > 1) ||
           (interval->from <= position && position < interval->to);
}

/* Simulates the step. `gaps`: a dunlin_interval_state for each. Leaves `sums`. Later runs and tries
 * are measured against it: only what differs is run again. */
dunlin_remat_result dunlin__remat_run(dunlin_remat *remat, const uint8_t *intervals,
                                      uint64_t limit_bytes);

/* Limits of a try; as soon as it exceeds one, it ends and is not valid. */
typedef struct dunlin_remat_bar {
    uint64_t max_excess_bytes;
    uint64_t max_cost_ns;
} dunlin_remat_bar;

/* The same, for a choice that differs in a few intervals from the last run within this limit;
 * `sums` stay those of that run. Without such a run this is a whole run. A result that is not valid
 * says nothing more. */
dunlin_remat_result dunlin__remat_try(dunlin_remat *remat, const uint8_t *intervals,
                                      uint64_t limit_bytes, const dunlin_remat_bar *bar);

/* Whether a recomputed op of the last whole run needs the interval's root during the interval, or
 * during those over which it is retained from there: if none does, and nothing touches it,
 * retaining it saves nothing. */
bool dunlin__remat_is_asked_for(const dunlin_remat *remat, const dunlin_interval *interval);

/* Runs it and fills `redo`, which holds at most n_recompute_max; more make the choice invalid. */
dunlin_remat_result dunlin__remat_log(dunlin_remat *remat, const uint8_t *intervals);

/* Runs it up to a position, leaving is_here as it is before that. */
void dunlin__remat_stand(dunlin_remat *remat, const uint8_t *intervals, uint32_t position);

/* Lowers the limit at a position by so much, beside earlier penalties; removes all penalties. */
void dunlin__remat_add_penalty(dunlin_remat *remat, uint32_t position, uint64_t bytes);
void dunlin__remat_forget_penalties(dunlin_remat *remat);

/* The interval in which a root is before a position, or NONE. */
static inline uint32_t dunlin__remat_interval_at(dunlin_remat *remat, uint32_t root,
                                                 uint32_t position)
{
    const dunlin_remat_touch *touches = remat->touches;
    uint32_t at = remat->touch_now[root];
    while (at != DUNLIN_MEM_NONE && touches[at].position >= position) {
        at = touches[at].prev;
    }
    if (at == DUNLIN_MEM_NONE) {
        return at;
    }
    while (touches[at].next != DUNLIN_MEM_NONE && touches[touches[at].next].position < position) {
        at = touches[at].next;
    }
    remat->touch_now[root] = at;
    return touches[at].interval;
}

/* Whether a root is in the file before a position, and not read back yet for its next use. */
static inline bool dunlin__remat_is_out(const dunlin_remat *remat, const uint8_t *intervals,
                                        uint32_t root, uint32_t position)
{
    const uint32_t interval = remat->roots[root].swap_interval;
    return interval != DUNLIN_MEM_NONE && intervals[interval] == DUNLIN_INTERVAL_SWAP &&
           remat->intervals[interval].from < position && position <= remat->intervals[interval].to;
}

/* Time to write a root out, and to read it back. */
uint64_t dunlin__remat_swap_ns(const dunlin_remat *remat, uint32_t swap_op);

static inline bool dunlin__remat_is_here(const dunlin_remat *remat, uint32_t root)
{
    return (remat->is_here[root / 64] >> (root % 64) & 1) != 0;
}

/* --- sizes.c --- */

/* What the largest op needs, by itself: no choice is under it. */
uint64_t dunlin__remat_floor(const dunlin_remat *remat);

/* Everything is retained, except over extensions. */
void dunlin__remat_keep_all(const dunlin_remat *remat, uint8_t *intervals);

/* Finds how far each root may be retained for what is computed from it. `root_of`: by tensor. */
void dunlin__remat_extend(dunlin_remat *remat, const uint32_t *root_of);

/* --- simulate.c --- */

/* Cost of recomputing a root at the scratch's position, with all that is missing for it. */
uint64_t dunlin__remat_recompute_cost(dunlin_remat *remat, uint32_t root);

/* --- choose.c --- */

typedef struct dunlin_remat_limits {
    uint64_t limit_bytes; /* for roots, workspace and fixed tensors together */
    uint64_t max_work;    /* of large-neighbourhood moves, in simulated ops; 0: greedy alone */
    uint64_t patience;    /* so many times the work without a gain before the moves end; 0: once */
    bool has_start;       /* `gaps` nearly fit: they are repaired first */
    bool is_rough;        /* an estimate will do: a few greedy runs, whatever they find, */
    bool is_glance;       /* or fewer still; */
    uint64_t aim_ns;      /* of a step in regions no more of them, if the first cost more */
} dunlin_remat_limits;

/*
 * Chooses intervals so that the step stays within the limit, as cheaply as possible. `gaps`
 * (n_intervals) is the start and the answer; `scratch` has room for twice as many. False: it found
 * none.
 */
DUNLIN_NODISCARD bool dunlin__remat_search(dunlin_remat *remat, const dunlin_remat_limits *limits,
                                           uint8_t *intervals, uint8_t *scratch,
                                           dunlin_remat_result *out_result);

/* --- min_peak.c --- */

/* The lowest peak it finds; `gaps` is the answer, `scratch` has room for twice as many. */
uint64_t dunlin__remat_lowest(dunlin_remat *remat, uint8_t *intervals, uint8_t *scratch);

#endif
