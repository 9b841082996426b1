/*
 * exec.c - the executor: loops, slices, steps; an address for each operand; a kernel call.
 *
 * Invariant: it decides nothing. What runs, where and in which order stands in the plan, which has
 * been verified; where a step came to the plan from another one, the plan's entry says what is left
 * to run. In debug builds what the plan calls dead is overwritten and forbidden, so with a wrong
 * plan or row a step crashes and does not compute wrong weights.
 */
#include "exec.h"

#include "graph/narrow.h"
#include "kernels/simd/denormals.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <assert.h>

/* One pass over a loop's body. */
typedef struct exec_slice {
    const dunlin_program *program;
    dunlin_arena *arena;
    const dunlin_step_run *run;
    dunlin_exec_control *control; /* or NULL */
    const dunlin_switch *entry;   /* or NULL */
    uint32_t loop_index;
    const dunlin_plan_loop *loop;
    int64_t first;
    int64_t n;
    bool is_last;
} exec_slice;

void dunlin__program_free(dunlin_program *program)
{
    dunlin__plan_destroy(program->plan);
    program->plan = NULL;
    dunlin__lowered_free(&program->lowered);
    dunlin__step_graph_destroy(program->step);
    program->step = NULL;
}

uint64_t dunlin__persistent_offset(const dunlin_program *program, uint32_t tensor)
{
    uint64_t offset = 0;
    for (uint32_t i = 0; i < tensor; i++) {
        uint64_t aligned = 0;
        const bool fits =
            dunlin__align_u64(program->lowered.tensors[i].fixed_bytes, DUNLIN_MEM_ALIGN, &aligned);
        assert(fits);
        (void)fits;
        offset += aligned;
    }
    return offset;
}

void dunlin__exec_poison_pool(const dunlin_program *program, dunlin_arena *arena)
{
    const uint64_t first = program->plan->persistent_bytes;
    if (arena->committed_bytes > first) {
        dunlin__arena_poison(arena, first, arena->committed_bytes - first);
    }
}

#ifndef NDEBUG

static bool is_pool(const dunlin_program *program, const dunlin_plan_allocation *place)
{
    return place->tensor == DUNLIN_MEM_NONE ||
           !dunlin__mem_is_static(&program->lowered.tensors[place->tensor]);
}

static void revive(const exec_slice *slice, uint32_t step)
{
    const dunlin_plan *plan = slice->program->plan;
    /* Live ranges of a plan to which the step migrated do not begin where the plan says. */
    for (uint32_t i = 0; i < plan->n_places && slice->entry == NULL; i++) {
        const dunlin_plan_allocation *place = &plan->places[i];
        if (place->first_step == step && is_pool(slice->program, place)) {
            dunlin__arena_unpoison(slice->arena, place->offset_bytes, place->bytes);
        }
    }
}

/* A place that begins at this very step on this one's bytes (in place), or that holds it whole. */
static bool is_inherited(const dunlin_plan *plan, const dunlin_plan_allocation *dead, uint32_t step)
{
    for (uint32_t i = 0; i < plan->n_places; i++) {
        const dunlin_plan_allocation *place = &plan->places[i];
        const bool is_alive = place->first_step <= step && place->last_step > step;
        const bool overlaps = place->offset_bytes < dead->offset_bytes + dead->bytes &&
                              dead->offset_bytes < place->offset_bytes + place->bytes;
        if (place != dead && is_alive && overlaps) {
            return true;
        }
    }
    return false;
}

static void bury(const exec_slice *slice, uint32_t step)
{
    const dunlin_plan *plan = slice->program->plan;
    for (uint32_t i = 0; i < plan->n_places && slice->entry == NULL; i++) {
        const dunlin_plan_allocation *place = &plan->places[i];
        if (place->last_step != step || !is_pool(slice->program, place)) {
            continue;
        }
        const bool is_of_slice =
            place->tensor == DUNLIN_MEM_NONE ||
            (dunlin__mem_is_sliced(&slice->program->lowered.tensors[place->tensor]) &&
             !place->is_whole);
        if ((slice->is_last || is_of_slice) && !is_inherited(plan, place, step)) {
            dunlin__arena_poison(slice->arena, place->offset_bytes, place->bytes);
        }
    }
}

#else

static void revive(const exec_slice *slice, uint32_t step)
{
    (void)slice;
    (void)step;
}

static void bury(const exec_slice *slice, uint32_t step)
{
    (void)slice;
    (void)step;
}

#endif

/* Samples of a slice that an op runs on, with so many of its parts. */
typedef struct exec_range {
    int64_t first;
    int64_t n;
    uint8_t parts;
} exec_range;

static void *operand_address(const exec_slice *slice, int64_t first, uint32_t place_index)
{
    if (place_index == DUNLIN_MEM_NONE) {
        return NULL;
    }
    const dunlin_plan_allocation *place = &slice->program->plan->places[place_index];
    unsigned char *base = dunlin__arena_at(slice->arena, place->offset_bytes, place->bytes);
    if (place->tensor != DUNLIN_MEM_NONE) {
        const int64_t before = place->is_whole ? first : first - slice->first;
        base += (uint64_t)before * slice->program->lowered.tensors[place->tensor].sample_bytes;
    }
    return base;
}

/* Where an access's bytes begin: a part's within its outermost parent's. */
static void *access_address(const exec_slice *slice, const exec_range *range,
                            const dunlin_mem_access *access, uint32_t place_index)
{
    if ((access->parts & range->parts) == 0) {
        return NULL;
    }
    unsigned char *base = operand_address(slice, range->first, place_index);
    const dunlin_mem_tensor *tensors = slice->program->lowered.tensors;
    for (uint32_t t = access->tensor; base != NULL && tensors[t].parent != DUNLIN_MEM_NONE;
         t = tensors[t].parent) {
        base += tensors[t].parent_offset;
    }
    return base;
}

static dunlin_status run_range(const exec_slice *slice, uint32_t step_index,
                               const exec_range *range)
{
    const dunlin_plan *plan = slice->program->plan;
    const dunlin_plan_step *step = &plan->steps[step_index];
    const dunlin_step_op *op = &slice->program->step->ops[step->op];
    void *operands[DUNLIN_STEP_MAX_ACCESSES];
    assert(op->n_accesses <= DUNLIN_STEP_MAX_ACCESSES);
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        operands[i] =
            access_address(slice, range, &op->accesses[i], plan->operands[step->first_operand + i]);
    }
    const dunlin_kernel_call call = {
        .operands = operands,
        .parts = range->parts,
        .first_sample = range->first,
        .n_samples = range->n,
        .is_first = range->first == 0,
        .workspace = operand_address(slice, range->first, step->workspace),
        .workspace_bytes =
            step->workspace == DUNLIN_MEM_NONE ? 0 : (size_t)plan->places[step->workspace].bytes,
        .params = op->params,
        .run = slice->run,
    };
    const dunlin_step_watch *watch = slice->run->watch;
    if (watch != NULL) {
        watch->op_fn(watch->ctx, op, range->first, range->n, false);
    }
    const dunlin_narrow narrow = dunlin__narrow_of(slice->program->step, op);
    dunlin_status status = narrow.n == 0
                               ? op->kernel->run_fn(&call)
                               : dunlin__narrow_run(slice->program->step, op, &narrow, &call);
    if (watch != NULL) {
        watch->op_fn(watch->ctx, op, range->first, range->n, true);
    }
    if (status == DUNLIN_OK && slice->run->trace != NULL && slice->run->trace->looks) {
        status =
            dunlin__run_look(slice->run, slice->program->step->tensors, op, operands, range->n);
    }
    if (status == DUNLIN_OK && slice->control != NULL && (range->parts & ~DUNLIN_MEM_MAP) != 0) {
        slice->control->n_taken[step->op] =
            range->parts == DUNLIN_MEM_FIXED ? 1 : (uint64_t)(range->first + range->n);
    }
    return status;
}

/* What is left of a step in a plan to which it migrated. */
static dunlin_status run_left(const exec_slice *slice, uint32_t step_index)
{
    const dunlin_plan_step *step = &slice->program->plan->steps[step_index];
    const int64_t taken = (int64_t)slice->control->n_taken[step->op];
    const int64_t end = slice->first + slice->n;
    const bool needs_map = slice->entry->runs_map[step_index] != 0;
    if (step->parts == DUNLIN_MEM_FIXED) {
        const exec_range once = {slice->first, slice->n, DUNLIN_MEM_FIXED};
        return taken == 0 ? run_range(slice, step_index, &once) : DUNLIN_OK;
    }
    int64_t open = end; /* from here on the step runs with all its parts */
    if ((step->parts & DUNLIN_MEM_REDUCE) != 0) {
        open = taken < slice->first ? slice->first : taken < end ? taken : end;
        assert(taken >= slice->first);
    }
    if (needs_map && open > slice->first) {
        const exec_range again = {slice->first, open - slice->first, DUNLIN_MEM_MAP};
        DUNLIN_TRY(run_range(slice, step_index, &again));
    }
    const exec_range rest = {open, end - open, step->parts};
    return open < end ? run_range(slice, step_index, &rest) : DUNLIN_OK;
}

static dunlin_status run_step(const exec_slice *slice, uint32_t step_index)
{
    if (slice->entry != NULL) {
        return run_left(slice, step_index);
    }
    const exec_range whole = {slice->first, slice->n,
                              slice->program->plan->steps[step_index].parts};
    revive(slice, step_index);
    const dunlin_status status = run_range(slice, step_index, &whole);
    bury(slice, step_index);
    return status;
}

/* Moves staged tensors to allocations whose live ranges begin here. */
static void bring_late(const exec_slice *slice, uint32_t step_index)
{
    dunlin_exec_control *control = slice->control;
    if (slice->entry != NULL && control->next_late < slice->entry->n_late) {
        control->next_late = dunlin__switch_move_late(
            slice->entry, slice->program->plan, control->next_late, step_index, slice->arena->base);
    }
}

/* Between two ops: somebody may want another plan. */
static dunlin_status turn(const exec_slice *slice, uint32_t step_index, bool *out_is_changed)
{
    dunlin_exec_control *control = slice->control;
    if (control == NULL || !atomic_load_explicit(control->is_asked, memory_order_acquire)) {
        return DUNLIN_OK;
    }
    const dunlin_plan_point point = {
        .loop = slice->loop_index, .step = step_index, .first_sample = (uint64_t)slice->first};
    return control->turn_fn(control->ctx, &point, out_is_changed);
}

static dunlin_status run_loop(exec_slice *slice, bool *out_is_changed)
{
    const dunlin_plan_loop *loop = slice->loop;
    const int64_t n_batch = slice->run->n_batch;
    /* A loop of FIXED ops runs once, and for the whole batch. */
    const int64_t length = loop->slice_samples == 0 ? n_batch : (int64_t)loop->slice_samples;
    for (int64_t first = 0; first < n_batch; first += length) {
        const int64_t left = n_batch - first;
        slice->first = first;
        slice->n = left < length ? left : length;
        slice->is_last = left <= length;
        if (slice->entry != NULL &&
            (uint64_t)(first + slice->n) <= slice->entry->done[slice->loop_index]) {
            continue;
        }
        for (uint32_t i = 0; i < loop->n_steps; i++) {
            bring_late(slice, loop->first_step + i);
            DUNLIN_TRY(turn(slice, loop->first_step + i, out_is_changed));
            if (*out_is_changed) {
                return DUNLIN_OK;
            }
            DUNLIN_TRY(run_step(slice, loop->first_step + i));
        }
    }
    return DUNLIN_OK;
}

/* Until the plan's end, or until it is changed. */
static dunlin_status run_plan(const dunlin_program *program, dunlin_arena *arena,
                              dunlin_exec_control *control, const dunlin_step_run *run,
                              bool *out_is_changed)
{
    *out_is_changed = false;
    for (uint32_t i = 0; i < program->plan->n_loops && !*out_is_changed; i++) {
        exec_slice slice = {
            .program = program,
            .arena = arena,
            .run = run,
            .control = control,
            .entry = control != NULL ? control->entry : NULL,
            .loop_index = i,
            .loop = &program->plan->loops[i],
        };
        DUNLIN_TRY(run_loop(&slice, out_is_changed));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__exec(const dunlin_program *program, dunlin_arena *arena,
                           dunlin_exec_control *control, const dunlin_step_run *run)
{
    assert(run->n_batch >= 1 && (uint64_t)run->n_batch <= program->plan->batch);
    bool is_changed = true;
    dunlin_status status = DUNLIN_OK;
    /* A program with fewer static tensors may have run last, and had its pool there. */
    dunlin__arena_unpoison(arena, 0, program->plan->persistent_bytes);
    const uint64_t mode = subnormals_flush();
    while (status == DUNLIN_OK && is_changed) {
        status = run_plan(program, arena, control, run, &is_changed);
    }
    float_mode_set(mode);
    if (status != DUNLIN_OK) {
        dunlin__exec_poison_pool(program, arena);
    }
    return status;
}
