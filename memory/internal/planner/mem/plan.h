/*
 * plan.h - a plan: a list of slice loops, each one body of (op, variant, parts) with one set of
 * addresses.
 *
 * The plain step is one loop with one slice; micro-batching is one loop with many;
 * rematerialisation is map parts that run again; sliced regions are several loops. One verifier,
 * one executor, one dump for all. The last slice may be shorter, so a plan for a batch of B runs
 * any batch of 1 ... B.
 */
#ifndef DUNLIN_MEM_PLAN_H
#define DUNLIN_MEM_PLAN_H

#include <dunlin/alloc.h>
#include <mem/graph.h>

/* A range of the arena that holds one instance of a tensor, or an op's workspace, from step to
 * step. A part has no allocation of its own: it lies inside that of its outermost parent, at the
 * sum of the parent_offsets. */
typedef struct dunlin_plan_allocation {
    uint32_t tensor; /* DUNLIN_MEM_NONE: workspace */
    uint32_t first_step;
    uint32_t last_step; /* inclusive; in a loop of several slices an accumulator is alive through
                           the whole loop */
    bool is_whole; /* holds all samples of the batch: slice i lies at first_sample * sample_bytes */
    uint64_t offset_bytes;
    uint64_t bytes;
} dunlin_plan_allocation;

typedef struct dunlin_plan_step {
    uint32_t op;
    uint8_t variant;
    uint8_t parts;          /* which parts run here */
    uint32_t first_operand; /* into `operands`: one allocation per access of the variant (a part's
                               is its outermost parent's), NONE where its parts do not run */
    uint32_t workspace;     /* an allocation, or NONE */
} dunlin_plan_step;

typedef struct dunlin_plan_loop {
    uint32_t first_step;
    uint32_t n_steps;
    uint64_t
        slice_samples; /* at most so many samples at a time; 0: the steps are FIXED and run once */
} dunlin_plan_loop;

typedef enum dunlin_plan_policy {
    DUNLIN_PLAN_AUTO = 0,   /* the fastest that fits: the whole batch, slices with accumulation,
                               rematerialisation, or both */
    DUNLIN_PLAN_NONE,       /* whole batch, no two tensors share an address: a naive executor */
    DUNLIN_PLAN_POOL,       /* whole batch, lifetime pool only */
    DUNLIN_PLAN_MICROBATCH, /* lifetime pool; slices of the size asked for, else the largest */
    DUNLIN_PLAN_IDEAL,      /* whole batch, lifetime pool, whatever the budget */
    DUNLIN_PLAN_RECOMPUTE,  /* evicts on demand by live bytes (Melon's first half) */
    DUNLIN_PLAN_SGC,        /* static checkpointing in segments */
    DUNLIN_PLAN_SAGE,       /* slices until throughput falls, then checkpointing on demand */
    DUNLIN_PLAN_MELON, /* longest live range first; evicts where the pool's top passes the budget */
    DUNLIN_PLAN_SUBLINEAR, /* static checkpointing, as many segments as the root of the ops */
    DUNLIN_PLAN_WHOLE,     /* AUTO on the whole batch alone */
    DUNLIN_PLAN_VDNN,      /* all that the graph lets be swapped is, from the forward to the
                              backward pass */
    DUNLIN_PLAN_CAPUCHIN   /* swaps or recomputes, tensor by tensor, by cost */
} dunlin_plan_policy;

struct dunlin_planner;

/* A published policy, of mem/baselines.h: keeps in the planner what fits; where nothing does,
 * `*out_least` is the least pool with which it works. */
typedef dunlin_status (*dunlin_plan_baseline_fn)(struct dunlin_planner *planner, bool can_slice,
                                                 uint64_t *out_least, dunlin_error *error);

typedef struct dunlin_plan_options {
    uint64_t batch;        /* samples; at least 1 */
    uint64_t budget_bytes; /* for the arena: persistent bytes + pool; 0: no limit */
    /* MICROBATCH: the slice; AUTO: an upper limit, where barriers are, for the slices of regions;
     * 0: the batch. */
    uint64_t slice_samples;
    /* Under every policy slices of slice_samples, neither more nor less: the whole batch only if it
     * is no larger. For graphs whose results depend on the slices. */
    bool is_slice_fixed;
    bool is_least_quick; /* the least bytes by the fixed attempts alone, not searched for below */
    /* AUTO, where no barrier is: instead of slices of the whole step, the whole batch or regions in
     * slices, with so many cuts at equal times. A step that runs whole can be resumed in such a
     * plan. */
    uint32_t n_cuts;
    dunlin_plan_policy policy;
    /* Takes the decisions of the published policies (RECOMPUTE and all after it, but WHOLE), which
     * are UNSUPPORTED without it. */
    dunlin_plan_baseline_fn baseline_fn;
    dunlin_alloc alloc; /* the plan and, while planning, its scratch */
} dunlin_plan_options;

typedef struct dunlin_plan {
    dunlin_alloc alloc;
    uint64_t batch;
    uint64_t arena_bytes;            /* persistent + pool: what the arena must hold */
    uint64_t persistent_bytes;       /* at the bottom of the arena, in tensor order */
    uint64_t pool_bytes;             /* height of the packed pool */
    uint64_t pool_lower_bound_bytes; /* max over steps of the live bytes of this schedule: no
                                        packing can be lower */
    uint64_t table_bytes;            /* what the plan itself occupies */
    uint64_t cost_ns; /* predicted time of a step of `batch` samples, from the graph's costs */
    uint32_t n_recompute_ops; /* steps that run a map part again */
    dunlin_plan_policy policy;
    const char *packing; /* which order and fit won, for the report */
    dunlin_plan_loop *loops;
    uint32_t n_loops;
    dunlin_plan_step *steps;
    uint32_t n_steps;
    uint32_t *operands;
    uint32_t n_operands;
    dunlin_plan_allocation *places;
    uint32_t n_places;
} dunlin_plan;

/*
 * Finds a plan that fits, packs it, and verifies it. BUDGET when there is none, with bytes that do
 * work (error->needed_bytes): those of dunlin__plan_least_bytes(). From them on it succeeds; below
 * them it may. UNSUPPORTED when slices are asked for and a barrier forbids them (named), and for a
 * published policy without `baseline_fn`; MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__plan_create(const dunlin_mem_graph *graph,
                                                   const dunlin_plan_options *options,
                                                   dunlin_plan **out_plan, dunlin_error *error);
void dunlin__plan_destroy(dunlin_plan *plan);

/*
 * The arena bytes from which on a plan for `options->batch` is sure to be found under the policy,
 * whatever the budget in options: the lowest of the whole batch and slices of one sample (the whole
 * batch alone where a barrier forbids slices; the slices asked for under MICROBATCH or where they
 * are fixed), under AUTO with everything dropped that lowers the peak.
 */
DUNLIN_NODISCARD dunlin_status dunlin__plan_least_bytes(const dunlin_mem_graph *graph,
                                                        const dunlin_plan_options *options,
                                                        uint64_t *out_bytes, dunlin_error *error);

/* The same, and a plan that needs no more if the planner has one; else `*out_plan` is NULL, and
 * dunlin__plan_create() within those bytes makes one. */
DUNLIN_NODISCARD dunlin_status dunlin__plan_create_least(const dunlin_mem_graph *graph,
                                                         const dunlin_plan_options *options,
                                                         uint64_t *out_bytes,
                                                         dunlin_plan **out_plan,
                                                         dunlin_error *error);

/*
 * Gives `plan` the addresses of other plans, of the same graph and batch, wherever both keep a
 * tensor from its first use on: those of the first before those of the next, as far as all of it
 * still fits `arena_bytes`; plan->arena_bytes may grow up to that, or get smaller. Where no address
 * can be shared nothing changes. MEMORY; MISMATCH would be a fault of this library.
 */
DUNLIN_NODISCARD dunlin_status dunlin__plan_align(const dunlin_mem_graph *graph, dunlin_plan *plan,
                                                  const dunlin_plan *const *others,
                                                  uint32_t n_others, uint64_t arena_bytes,
                                                  dunlin_error *error);

/*
 * Checks a plan from nothing but the graph: every op's parts run exactly as the rules say (map
 * parts at will, reducers every sample once and in order, FIXED ops once); every batch-indexed read
 * is resident for the slice, every fixed read final; persistent writes follow every read of the old
 * version; no two allocations alive together overlap (in-place pairs excepted); nothing outside the
 * arena; alignment; sizes. Written independently of the planner: shares no code with it. Nothing in
 * the plan is trusted; the graph has passed its check at the plan's batch. MISMATCH with a text
 * that names the step, the op and the tensor; MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__plan_verify(const dunlin_mem_graph *graph,
                                                   const dunlin_plan *plan,
                                                   const dunlin_alloc *alloc, dunlin_error *error);

/* Live bytes at the step where the pool's live sum is highest, by class (persistent classes
 * included). */
typedef struct dunlin_plan_summary {
    uint64_t class_bytes[DUNLIN_MEM_N_CLASSES];
    uint64_t padding_bytes; /* pool height above the live bytes of that step */
    uint32_t peak_step;
} dunlin_plan_summary;
void dunlin__plan_summarize(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                            dunlin_plan_summary *out_summary);

/* What a plan retains and recomputes, and the cost. Tensors counted are batched ones, in bytes of a
 * slice. */
typedef struct dunlin_plan_account {
    uint64_t
        ideal_ns; /* of the whole batch at once, nothing recomputed, with the fastest variants */
    uint64_t recompute_ns; /* of the steps that run a map part again */
    uint64_t n_slices;     /* of the loop that makes the most; 1: none */
    uint64_t kept_bytes;   /* alive where the backward pass begins */
    uint32_t n_kept;
    uint32_t n_remade;     /* tensors with a recomputed instance */
    uint64_t remade_bytes; /* of all such instances */
    uint32_t n_swapped;    /* tensors that are written out */
    uint64_t swap_out_bytes, swap_in_bytes;
    uint64_t swap_ns; /* of the steps that write and read them */
} dunlin_plan_account;
void dunlin__plan_account(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                          dunlin_plan_account *out_account);

/*
 * Bytes of the operands of all operations of a step over n samples, at most the plan's batch: each
 * tensor that an operation's part reads or writes counts whole, once for each time the part runs
 * (per-sample tensors once over the step), and twice where it is added to or changed in place.
 * Workspace does not count, nor what is swapped; a cache may spare some of it.
 */
uint64_t dunlin__plan_operand_bytes(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                                    uint64_t n);

/* Predicted time of a step in slices of so many samples (the batch: whole) with nothing recomputed
 * and the fastest variants. */
uint64_t dunlin__graph_plain_ns(const dunlin_mem_graph *graph, uint64_t batch,
                                uint64_t slice_samples);

/*
 * A lower bound of every arena in which the loops take `slice_samples` at a time, whatever is
 * recomputed: persistent bytes, and the most that one op touches with the fixed tensors alive
 * beside it, which cannot be recomputed. The graph has passed its check.
 */
uint64_t dunlin__graph_floor_bytes(const dunlin_mem_graph *graph, uint64_t slice_samples);

/* Writes the plan as text, line by line: a head with the sizes, each loop with its steps and
 * addresses, the peak marked. */
typedef void (*dunlin_plan_line_fn)(void *ctx, const char *line);
void dunlin__plan_dump(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                       dunlin_plan_line_fn line_fn, void *ctx);

#endif
