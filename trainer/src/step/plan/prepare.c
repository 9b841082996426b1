/*
 * prepare.c - what a trainer plans: its copy of the network, the steps of training and of
 * inference, both lowered, with their costs.
 */
#include "prepare.h"

#include "net/outputs.h"
#include "step/build/choice.h"
#include "step/context/context.h"
#include "step/context/losses.h"
#include "step/lower/costs.h"
#include "step/swap/baselines.h"

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
    DUNLIN_TRY(options->baselines->add_swaps_fn(
        program->step,
        options->policy == DUNLIN_POLICY_VDNN ? DUNLIN_SWAP_CONV_INPUTS : DUNLIN_SWAP_ALL, error));
    trainer->swap = options->baselines->new_swap_fn(program->step, &trainer->counter.hooks);
    return trainer->swap != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0, "no memory to swap tensors");
}

static dunlin_step_build_options build_options(const dunlin_trainer *trainer, dunlin_emit_mode mode,
                                               dunlin_step_form form)
{
    const dunlin_trainer_options *options = &trainer->options;
    dunlin_step_build_options build = {
        .mode = mode,
        .batch = options->batch,
        .freeze_batch_norm = options->freeze_batch_norm,
        .is_ghost = options->ghost_statistics,
        .is_fused = !options->no_fuse && options->policy != DUNLIN_POLICY_NONE,
        .reads_sums = form == DUNLIN_FORM_SUMS,
        .has_momentum = options->momentum != 0.0F,
        .optimizer = options->optimizer,
        .clips_norm = options->clip_norm > 0.0F,
        .updates_last = options->least_budget_bytes > 0,
        .loss = options->loss,
        .label_smoothing = options->label_smoothing,
        .losses = trainer->losses,
        .n_class_weights = options->n_class_weights,
        .has_gradient_hook = options->gradient_fn != NULL,
        .n_gradient_slots = options->n_gradient_slots,
        .storage = options->storage,
        .precision = trainer->precision,
        .integers = trainer->integers,
    };
    dunlin__choice_options(options, &build);
    return build;
}

static dunlin_status build_program(const dunlin_trainer *trainer, dunlin_emit_mode mode,
                                   dunlin_step_form form, dunlin_program *program,
                                   dunlin_error *error)
{
    const dunlin_step_build_options build = build_options(trainer, mode, form);
    return dunlin__step_build(&trainer->net, &build, &trainer->counter.hooks, &program->step,
                              error);
}

static dunlin_status lower_program(const dunlin_trainer *trainer, dunlin_emit_mode mode,
                                   dunlin_program *program, dunlin_error *error)
{
    const dunlin_trainer_options *options = &trainer->options;
    DUNLIN_TRY(dunlin__lower(program->step, trainer->kernels, (size_t)options->n_threads,
                             mode == DUNLIN_EMIT_TRAIN && options->least_budget_bytes > 0,
                             &trainer->counter.hooks, &program->lowered, error));
    const dunlin_swap_speed speed = {.out_per_ns = options->swap_write_mb_per_s * MB_PER_S,
                                     .in_per_ns = options->swap_read_mb_per_s * MB_PER_S};
    dunlin__lower_swaps(program->step, &speed, &program->lowered);
    return DUNLIN_OK;
}

static dunlin_status check_costs(const dunlin_trainer *trainer, const dunlin_program *program,
                                 dunlin_error *error)
{
    const dunlin_trainer_options *options = &trainer->options;
    return dunlin__costs_check(options->costs, trainer->kernels->isa, options->n_threads,
                               &program->lowered.graph, error);
}

/* Costs that were measured in the other form of the same step are as good. */
static dunlin_status check_costs_of_both(const dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_program other = {.step = NULL};
    dunlin_status status = check_costs(trainer, &trainer->train, error);
    if (status != DUNLIN_MISMATCH || !trainer->train.step->reads_terms) {
        return status;
    }
    if (build_program(trainer, DUNLIN_EMIT_TRAIN, DUNLIN_FORM_SUMS, &other, &local) == DUNLIN_OK &&
        lower_program(trainer, DUNLIN_EMIT_TRAIN, &other, &local) == DUNLIN_OK &&
        check_costs(trainer, &other, &local) == DUNLIN_OK) {
        dunlin__error_clear(error);
        status = DUNLIN_OK;
    }
    dunlin__program_free(&other);
    return status;
}

static void apply_costs(const dunlin_trainer *trainer, dunlin_program *program)
{
    const dunlin_costs *costs = trainer->options.costs;
    dunlin__costs_apply(costs, program->step, dunlin__costs_are_of(costs, &program->lowered.graph),
                        &program->lowered);
}

static dunlin_status prepare_train(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_program *program = &trainer->train;
    DUNLIN_TRY(build_program(trainer, DUNLIN_EMIT_TRAIN, trainer->form, program, error));
    if (does_swap(&trainer->options)) {
        DUNLIN_TRY(prepare_swaps(trainer, program, error));
    }
    DUNLIN_TRY(lower_program(trainer, DUNLIN_EMIT_TRAIN, program, error));
    if (trainer->options.costs != NULL) {
        /* The form with terms is the first that is made. */
        if (trainer->form == DUNLIN_FORM_TERMS) {
            DUNLIN_TRY(check_costs_of_both(trainer, error));
        }
        apply_costs(trainer, program);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_prepare_train(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin__trainer_unprepare_train(trainer);
    const uint64_t bytes_before = trainer->counter.now_bytes;
    DUNLIN_TRY(prepare_train(trainer, error));
    trainer->train_bytes = trainer->counter.now_bytes - bytes_before;
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_prepare(dunlin_trainer *trainer, const dunlin_net *net,
                                      dunlin_error *error)
{
    const dunlin_status status = dunlin__net_copy(net, &trainer->counter.hooks, &trainer->net);
    if (status != DUNLIN_OK) {
        dunlin__net_init(&trainer->net, &trainer->counter.hooks);
        return dunlin__fail(error, status, "trainer", 0,
                            "no %s for a copy of the network of %zu nodes",
                            status == DUNLIN_MEMORY ? "memory" : "descriptor", net->n_nodes);
    }
    const uint32_t n_outputs = dunlin__net_n_outputs(&trainer->net);
    trainer->losses =
        dunlin__alloc_zeroed(&trainer->counter.hooks, n_outputs, sizeof *trainer->losses);
    trainer->output_metrics =
        dunlin__alloc_zeroed(&trainer->counter.hooks, n_outputs, sizeof *trainer->output_metrics);
    if (trainer->losses == NULL || trainer->output_metrics == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0, "no memory for losses of outputs");
    }
    DUNLIN_TRY(dunlin__losses_take(&trainer->net, &trainer->options, trainer->losses, error));
    const dunlin_step_build_options build =
        build_options(trainer, DUNLIN_EMIT_TRAIN, trainer->form);
    DUNLIN_TRY(dunlin__choice_check(&trainer->net, &build, error));
    DUNLIN_TRY(dunlin__choice_check_trained(&trainer->net, &build, error));
    DUNLIN_TRY(dunlin__trainer_prepare_train(trainer, error));
    dunlin_program *infer = &trainer->infer;
    DUNLIN_TRY(build_program(trainer, DUNLIN_EMIT_INFER, trainer->form, infer, error));
    DUNLIN_TRY(lower_program(trainer, DUNLIN_EMIT_INFER, infer, error));
    if (trainer->options.costs != NULL) {
        apply_costs(trainer, infer);
    }
    return DUNLIN_OK;
}
