/*
 * exec.c - the executor: loops, slices, steps; an address for each operand; a kernel call.
 *
 * Invariant: it decides nothing. What runs, where and in which order is the plan's, which has been
 * verified; in debug builds what the plan calls dead is overwritten and forbidden, so a plan or a
 * row that is wrong crashes and does not mistrain.
 */
#include "exec.h"

#include <mem/checked.h>

#include <assert.h>

/* One pass over a loop's body. */
typedef struct exec_slice {
    const dunlin_program *program;
    dunlin_arena *arena;
    const dunlin_step_run *run;
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
    const uint64_t first = program->lowered.persistent_bytes;
    if (arena->committed_bytes > first) {
        dunlin__arena_poison(arena, first, arena->committed_bytes - first);
    }
}

#ifndef NDEBUG

static bool is_pool(const dunlin_program *program, const dunlin_plan_place *place)
{
    return place->tensor == DUNLIN_MEM_NONE ||
           !program->lowered.tensors[place->tensor].is_persistent;
}

static void revive(const exec_slice *slice, uint32_t step)
{
    const dunlin_plan *plan = slice->program->plan;
    for (uint32_t i = 0; i < plan->n_places; i++) {
        const dunlin_plan_place *place = &plan->places[i];
        if (place->first_step == step && is_pool(slice->program, place)) {
            dunlin__arena_unpoison(slice->arena, place->offset_bytes, place->bytes);
        }
    }
}

/* A place that begins at this very step on this one's bytes (in place), or that holds it whole. */
static bool is_inherited(const dunlin_plan *plan, const dunlin_plan_place *dead, uint32_t step)
{
    for (uint32_t i = 0; i < plan->n_places; i++) {
        const dunlin_plan_place *place = &plan->places[i];
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
    for (uint32_t i = 0; i < plan->n_places; i++) {
        const dunlin_plan_place *place = &plan->places[i];
        if (place->last_step != step || !is_pool(slice->program, place)) {
            continue;
        }
        const bool is_of_slice =
            place->tensor == DUNLIN_MEM_NONE ||
            (slice->program->lowered.tensors[place->tensor].sample_bytes > 0 && !place->is_whole);
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

static void *operand_address(const exec_slice *slice, uint32_t place_index)
{
    if (place_index == DUNLIN_MEM_NONE) {
        return NULL;
    }
    const dunlin_plan_place *place = &slice->program->plan->places[place_index];
    unsigned char *base = dunlin__arena_at(slice->arena, place->offset_bytes, place->bytes);
    if (place->is_whole && place->tensor != DUNLIN_MEM_NONE) {
        base +=
            (uint64_t)slice->first * slice->program->lowered.tensors[place->tensor].sample_bytes;
    }
    return base;
}

/* Where an access's bytes begin: a part's within its outermost parent's. */
static void *access_address(const exec_slice *slice, const dunlin_mem_access *access,
                            uint32_t place_index)
{
    unsigned char *base = operand_address(slice, place_index);
    const dunlin_mem_tensor *tensors = slice->program->lowered.tensors;
    for (uint32_t t = access->tensor; base != NULL && tensors[t].parent != DUNLIN_MEM_NONE;
         t = tensors[t].parent) {
        base += tensors[t].parent_offset;
    }
    return base;
}

static dunlin_status run_step(const exec_slice *slice, uint32_t step_index)
{
    const dunlin_plan *plan = slice->program->plan;
    const dunlin_plan_step *step = &plan->steps[step_index];
    const dunlin_step_op *op = &slice->program->step->ops[step->op];
    void *operands[DUNLIN_STEP_MAX_ACCESSES];
    assert(op->n_accesses <= DUNLIN_STEP_MAX_ACCESSES);
    revive(slice, step_index);
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        operands[i] =
            access_address(slice, &op->accesses[i], plan->operands[step->first_operand + i]);
    }
    const dunlin_kernel_call call = {
        .operands = operands,
        .parts = step->parts,
        .first_sample = slice->first,
        .n_samples = slice->n,
        .is_first = slice->first == 0,
        .workspace = operand_address(slice, step->workspace),
        .workspace_bytes =
            step->workspace == DUNLIN_MEM_NONE ? 0 : (size_t)plan->places[step->workspace].bytes,
        .params = op->params,
        .run = slice->run,
    };
    const dunlin_step_watch *watch = slice->run->watch;
    if (watch != NULL) {
        watch->op_fn(watch->ctx, op, slice->n, false);
    }
    const dunlin_status status = op->kernel->run_fn(&call);
    if (watch != NULL) {
        watch->op_fn(watch->ctx, op, slice->n, true);
    }
    bury(slice, step_index);
    return status;
}

static dunlin_status run_loop(exec_slice *slice)
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
        for (uint32_t i = 0; i < loop->n_steps; i++) {
            const dunlin_status status = run_step(slice, loop->first_step + i);
            if (status != DUNLIN_OK) {
                return status;
            }
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__exec(const dunlin_program *program, dunlin_arena *arena,
                           const dunlin_step_run *run)
{
    assert(run->n_batch >= 1 && (uint64_t)run->n_batch <= program->plan->batch);
    for (uint32_t i = 0; i < program->plan->n_loops; i++) {
        exec_slice slice = {
            .program = program, .arena = arena, .run = run, .loop = &program->plan->loops[i]};
        const dunlin_status status = run_loop(&slice);
        if (status != DUNLIN_OK) {
            dunlin__exec_poison_pool(program, arena);
            return status;
        }
    }
    return DUNLIN_OK;
}
