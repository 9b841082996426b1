/*
 * attempt.h - what the search and the published policies share: one planner for one call, attempts
 * that lay a schedule out and pack it, and the best of them.
 */
#ifndef DUNLIN_MEM_PLANNER_H
#define DUNLIN_MEM_PLANNER_H

#include "plan/emit.h"
#include "remat/model.h"

/* A schedule, the choices that led to it, and its size and time. */
typedef struct dunlin_attempt {
    uint64_t slice_samples;
    uint32_t n_changes; /* variants changed for less workspace */
    bool is_fitting;
    uint64_t pool_bytes;
    uint64_t lower_bound_bytes;
    uint64_t cost_ns;
} dunlin_attempt;

/* How the step is cut: not at all; into regions, with updates held back for a few of them; the same
 * with all updates at its end. */
typedef enum dunlin_cut {
    DUNLIN_CUT_NONE = 0,
    DUNLIN_CUT_UPDATES_HELD,
    DUNLIN_CUT_UPDATES_LAST
} dunlin_cut;

#define DUNLIN_N_CUTS 3

/* The model of rematerialisation for one way to cut the step, and a choice for it. */
typedef struct dunlin_cut_model {
    dunlin_remat remat;
    dunlin_regions regions;
    uint64_t *slices; /* by region */
    uint32_t n_slices;
    uint8_t *intervals; /* five times n_intervals: the current choice, scratch of a search (two),
                      the lowest, the fastest that packed */
    uint32_t n_interval_bytes;
    uint64_t share;         /* of the current slices, where the step is cut */
    uint64_t fastest_share; /* of the fastest choice that packed within the budget, */
    uint64_t fastest_ns;    /* and its time; 0: there is none */
} dunlin_cut_model;

typedef struct dunlin_planner {
    const dunlin_mem_graph *graph;
    dunlin_plan_options options;
    uint64_t budget_bytes;   /* UINT64_MAX: no limit */
    uint64_t most_samples;   /* of a slice: the batch, or less where slices are fixed */
    uint64_t most_of_region; /* samples of a slice of a region */
    uint64_t persistent_bytes;
    uint8_t *variants;
    uint8_t *is_after_barrier;
    uint32_t barrier_op;
    dunlin_schedule schedule; /* of the current attempt */
    dunlin_schedule kept;     /* of the best so far */
    dunlin_attempt best;
    uint64_t *offsets; /* of its blocks, packed */
    uint32_t n_offsets;
    uint32_t n_steps_max;    /* of both schedules */
    dunlin_pack_span *spans; /* room for the loops of either */
    dunlin_live live;
    dunlin_packer packer;
    bool packs_low;       /* as low as it can, whatever the budget: where the least is found */
    bool keeps_lowest;    /* the lowest attempt is kept, though it does not fit: */
    bool has_lowest;      /* `kept` and `best` are it */
    bool is_patient;      /* searches go on for longer, and from what is a little slower */
    uint64_t aim_ns;      /* recompute time beyond which an estimate need not be exact */
    uint32_t pack_method; /* of the portfolio, where a policy packs by one alone; or NONE */
    uint64_t *sums;
    uint32_t n_sums;
    dunlin_cut_model models[DUNLIN_N_CUTS]; /* each made when first needed */
    dunlin_cut_model *at; /* the current one (so a planner is never copied), for */
    dunlin_cut cut;
} dunlin_planner;

/* Checks the graph and makes the planner. ARGUMENT, OVERFLOW, MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__planner_open(const dunlin_mem_graph *graph,
                                                    const dunlin_plan_options *options,
                                                    dunlin_planner *out_planner,
                                                    dunlin_error *error);
void dunlin__planner_close(dunlin_planner *planner);

DUNLIN_NODISCARD dunlin_status dunlin__planner_no_memory(const dunlin_planner *planner,
                                                         dunlin_error *error);

/* Variants of all ops: the fastest for a slice size; then, where there are any, those with the
 * least workspace. */
void dunlin__planner_choose_fastest(dunlin_planner *planner, uint64_t slice_samples);
void dunlin__planner_choose_smallest(dunlin_planner *planner, uint64_t slice_samples);

/* The schedule with the variants as they are, its live ranges and its lower bound. `is_cut`: region
 * after region in the planner's slices, else in slices of so many samples. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__planner_lay_out(dunlin_planner *planner,
                                                       uint64_t slice_samples, bool is_cut,
                                                       const dunlin_recompute_list *recompute,
                                                       uint64_t *out_bound, uint32_t *out_peak_step,
                                                       dunlin_error *error);

/* Packs what is laid out, as low as the budget asks for; returns the height. */
uint64_t dunlin__planner_pack(dunlin_planner *planner, uint64_t lower_bound_bytes);

/* Size and time of the current attempt. */
void dunlin__planner_conclude(const dunlin_planner *planner, uint64_t slice_samples, uint64_t bound,
                              uint64_t height, dunlin_attempt *out_attempt);

/* Bytes that the budget leaves to the pool; 0 if it does not even hold what is persistent. */
uint64_t dunlin__planner_room(const dunlin_planner *planner);

/*
 * Tries one slice size without rematerialisation, changing variants at the peak (at most so often)
 * until it fits or nothing is left to change. The answer is the first try that fits, else the
 * lowest.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_slices(dunlin_planner *planner, uint64_t slice_samples,
                                                  uint32_t max_changes, dunlin_attempt *out_attempt,
                                                  dunlin_error *error);

/* How far an attempt with rematerialisation goes. */
typedef enum dunlin_effort {
    DUNLIN_EFFORT_GLANCE,   /* about what it would cost, to compare ways to cut the step */
    DUNLIN_EFFORT_ESTIMATE, /* what it would cost, if it could be packed */
    DUNLIN_EFFORT_QUICK,
    DUNLIN_EFFORT_THOROUGH /* with large-neighbourhood moves */
} dunlin_effort;

/*
 * Tries one slice size with rematerialisation. It ends without a plan that fits as soon as it costs
 * no less than the best so far; then, and of an estimate or a glance, `cost_ns` is what it had come
 * to, and UINT64_MAX where there is no choice within the budget.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_remat(dunlin_planner *planner, uint64_t slice_samples,
                                                 dunlin_effort effort, dunlin_attempt *out_attempt,
                                                 dunlin_error *error);

/*
 * Tries the step cut into regions, each in the smallest slices whose fixed costs take at most one
 * part in `share` of its time (0: slices of one sample), with rematerialisation.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_regions(dunlin_planner *planner, dunlin_cut cut,
                                                   uint64_t share, dunlin_effort effort,
                                                   dunlin_attempt *out_attempt,
                                                   dunlin_error *error);

/* Large-neighbourhood moves within the current budget from the fastest choice that has packed so
 * far in a step cut into regions, whatever limit it was found at; what is faster is kept. MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_from_fastest(dunlin_planner *planner,
                                                        dunlin_error *error);

/* Lays out what an estimate of the whole batch, or of the step cut into regions, had chosen: as if
 * it had just been made. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__estimate_again(dunlin_planner *planner, dunlin_cut cut,
                                                      uint64_t share, const uint8_t *intervals,
                                                      dunlin_attempt *out_attempt,
                                                      dunlin_error *error);

/* Packs what an estimate has laid out. */
void dunlin__planner_pack_round(dunlin_planner *planner, dunlin_attempt *attempt);

/* Raises the price of memory where that packing is too high, and estimates again from there.
 * `cost_ns` is UINT64_MAX where there is no choice. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__planner_search_round(dunlin_planner *planner,
                                                            dunlin_attempt *attempt,
                                                            dunlin_error *error);

/* The lowest pool that is found for the step cut into regions, in slices of one sample. */
DUNLIN_NODISCARD dunlin_status dunlin__try_lowest_regions(dunlin_planner *planner, dunlin_cut cut,
                                                          dunlin_attempt *out_attempt,
                                                          dunlin_error *error);

/*
 * The fastest of the plans at a row of limits that no budget changes, below what the whole batch
 * takes with nothing recomputed. `can_be_whole`: not only in regions.
 */
DUNLIN_NODISCARD dunlin_status dunlin__try_frontier(dunlin_planner *planner, bool can_be_whole,
                                                    dunlin_error *error);

/* Time of the whole batch in slices of so many samples, nothing recomputed, with the fastest
 * variants. */
uint64_t dunlin__planner_plain_ns(dunlin_planner *planner, uint64_t slice_samples);

/* Sets the model of rematerialisation to a slice size, with the fastest variants. */
DUNLIN_NODISCARD dunlin_status dunlin__planner_set_slice(dunlin_planner *planner,
                                                         uint64_t slice_samples,
                                                         dunlin_error *error);

/* Room for schedules of so many steps. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__planner_reserve_steps(dunlin_planner *planner,
                                                             uint32_t n_steps, dunlin_error *error);

/* Small steps: looks for a faster plan of the whole batch than the best so far, one recomputed op
 * at a time. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__try_redos(dunlin_planner *planner, dunlin_error *error);

/* Lays out and packs the current choice of retention intervals, for the slice size that is set. */
DUNLIN_NODISCARD dunlin_status dunlin__try_intervals(dunlin_planner *planner,
                                                     uint64_t slice_samples,
                                                     dunlin_attempt *out_attempt,
                                                     dunlin_error *error);

/* The position of the body at or before a step of the current schedule; a recomputed op belongs to
 * the op that needs it. */
uint32_t dunlin__planner_position(const dunlin_planner *planner, uint32_t step);

/* The lowest pool that rematerialisation finds for a slice size, whatever it costs. */
DUNLIN_NODISCARD dunlin_status dunlin__try_lowest(dunlin_planner *planner, uint64_t slice_samples,
                                                  dunlin_attempt *out_attempt, dunlin_error *error);

/* Keeps the current attempt, with its schedule, if it fits and is faster than the best so far (of
 * equals the one with larger slices). MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__planner_keep(dunlin_planner *planner,
                                                    const dunlin_attempt *attempt,
                                                    dunlin_error *error);

/* Writes the kept schedule down as a plan. */
DUNLIN_NODISCARD dunlin_status dunlin__planner_emit(dunlin_planner *planner, dunlin_plan **out_plan,
                                                    dunlin_error *error);

#endif
