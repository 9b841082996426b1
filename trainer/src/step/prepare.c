/*
 * prepare.c - what a trainer plans: its copy of the network, the steps of training and of
 * inference, both lowered, with their costs.
 */
#include "costs.h"
#include "handle.h"

#include <mem/support.h>

#define MB_PER_S 1e-3 /* in bytes a nanosecond */

static bool does_swap(const dunlin_trainer_options *options)
{
    return options->policy == DUNLIN_POLICY_VDNN || options->policy == DUNLIN_POLICY_CAPUCHIN;
}

/* Pairs of ops that swap, for the policies that may. */
static dunlin_status prepare_swaps(dunlin_trainer *trainer, dunlin_program *program,
                                   dunlin_error *error)
{
    const dunlin_trainer_options *options = &trainer->options;
    DUNLIN_TRY(dunlin__step_add_swaps(
        program->step,
        options->policy == DUNLIN_POLICY_VDNN ? DUNLIN_SWAP_CONV_INPUTS : DUNLIN_SWAP_ALL, error));
    trainer->swap = dunlin__swap_new(program->step, &trainer->counter.hooks);
    return trainer->swap != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0, "no memory to swap tensors");
}

static dunlin_status prepare_program(dunlin_trainer *trainer, dunlin_emit_mode mode,
                                     dunlin_program *program, dunlin_error *error)
{
    const dunlin_trainer_options *options = &trainer->options;
    const dunlin_step_build_options build = {
        .mode = mode,
        .batch = options->batch,
        .frozen_prefixes = options->frozen_prefixes,
        .freeze_batch_norm = options->freeze_batch_norm,
        .is_ghost = options->ghost_statistics,
        .is_fused = !options->no_fuse && options->policy != DUNLIN_POLICY_NONE,
        .has_momentum = options->momentum != 0.0F,
        .optimizer = options->optimizer,
        .clips_norm = options->clip_norm > 0.0F,
        .updates_last = options->lowest_budget_bytes > 0,
        .loss = options->loss,
        .label_smoothing = options->label_smoothing,
        .has_gradient_hook = options->gradient_fn != NULL,
        .n_gradient_slots = options->n_gradient_slots,
    };
    DUNLIN_TRY(
        dunlin__step_build(&trainer->net, &build, &trainer->counter.hooks, &program->step, error));
    if (mode == DUNLIN_EMIT_TRAIN && does_swap(options)) {
        DUNLIN_TRY(prepare_swaps(trainer, program, error));
    }
    DUNLIN_TRY(dunlin__lower(program->step, trainer->kernels, (size_t)options->n_threads,
                             mode == DUNLIN_EMIT_TRAIN && options->lowest_budget_bytes > 0,
                             &trainer->counter.hooks, &program->lowered, error));
    const dunlin_swap_speed speed = {.out_per_ns = options->swap_write_mb_per_s * MB_PER_S,
                                     .in_per_ns = options->swap_read_mb_per_s * MB_PER_S};
    dunlin__lower_swaps(program->step, &speed, &program->lowered);
    if (options->costs == NULL) {
        return DUNLIN_OK;
    }
    const bool is_measured = mode == DUNLIN_EMIT_TRAIN;
    if (is_measured) {
        DUNLIN_TRY(dunlin__costs_check(options->costs, trainer->kernels->isa, options->n_threads,
                                       &program->lowered.graph, error));
    }
    dunlin__costs_apply(options->costs, program->step, is_measured, &program->lowered);
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_prepare(dunlin_trainer *trainer, const dunlin_net *net,
                                      dunlin_error *error)
{
    if (dunlin__net_copy(net, &trainer->counter.hooks, &trainer->net) != DUNLIN_OK) {
        dunlin__net_init(&trainer->net, &trainer->counter.hooks);
        return dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0,
                            "no memory for a copy of the network of %zu nodes", net->n_nodes);
    }
    DUNLIN_TRY(prepare_program(trainer, DUNLIN_EMIT_TRAIN, &trainer->train, error));
    return prepare_program(trainer, DUNLIN_EMIT_INFER, &trainer->infer, error);
}
