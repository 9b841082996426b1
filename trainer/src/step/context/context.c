/*
 * context.c - allocates a trainer without graphs, plans and arena, and frees it with all that it
 * has.
 */
#include "context.h"

#include "net/outputs.h"
#include "options.h"
#include "rungs.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <stdlib.h>
#include <string.h>

dunlin_status dunlin__select_kernels(const char *asked, const dunlin_kernels **out_kernels,
                                     dunlin_error *error)
{
    const char *isa = asked != NULL ? asked : getenv("DUNLIN_ISA");
    *out_kernels = dunlin__kernels_select(isa);
    if (*out_kernels == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                            "instruction set \"%.40s\" is unknown or not on this machine",
                            isa != NULL ? isa : "");
    }
    return DUNLIN_OK;
}

const dunlin_int_kernels *dunlin__select_integers(const char *asked)
{
    return dunlin__int_kernels_select(asked != NULL ? asked : getenv("DUNLIN_ISA"));
}

static bool copy_class_weights(dunlin_trainer *trainer, const dunlin_trainer_options *options)
{
    if (options->class_weights == NULL) {
        return true;
    }
    const size_t n = (size_t)options->n_class_weights;
    trainer->class_weights =
        dunlin__alloc_array(&trainer->counter.hooks, n, sizeof *trainer->class_weights);
    if (trainer->class_weights != NULL) {
        memcpy(trainer->class_weights, options->class_weights, n * sizeof(float));
    }
    trainer->options.class_weights = trainer->class_weights;
    return trainer->class_weights != NULL;
}

dunlin_status dunlin__trainer_make(const dunlin_trainer_options *options,
                                   dunlin_trainer **out_trainer, dunlin_error *error)
{
    *out_trainer = NULL;
    dunlin_trainer_options taken;
    dunlin_schedule schedule;
    const dunlin_kernels *kernels = NULL;
    DUNLIN_TRY(dunlin__trainer_take_options(options, &taken, error));
    DUNLIN_TRY(dunlin__schedule_take(taken.schedule, &schedule, error));
    const dunlin_precision *precision = NULL;
    dunlin_grad_bits grad_bits;
    DUNLIN_TRY(dunlin__select_kernels(taken.isa, &kernels, error));
    int32_t weight_growth = 0;
    DUNLIN_TRY(dunlin__numbers_take(&taken, &precision, &grad_bits, error));
    DUNLIN_TRY(dunlin__weight_growth_set(precision, taken.weight_growth, &weight_growth, error));
    const dunlin_alloc base = dunlin__alloc_or_default(&taken.alloc);
    dunlin_trainer *trainer = dunlin__alloc_zeroed(&base, 1, sizeof *trainer);
    if (trainer == NULL) {
        (void)dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0, "no memory for a trainer");
        return DUNLIN_MEMORY;
    }
    trainer->base = base;
    dunlin_alloc_counter_init(&trainer->counter, &base);
    trainer->counter.now_bytes = sizeof *trainer;
    trainer->counter.peak_bytes = sizeof *trainer;
    trainer->options = taken;
    trainer->schedule = schedule;
    trainer->options.schedule = &trainer->schedule;
    trainer->kernels = kernels;
    trainer->integers = dunlin__select_integers(taken.isa);
    trainer->precision = precision;
    trainer->grad_bits = grad_bits;
    trainer->weight_growth = weight_growth;
    trainer->seed = taken.seed;
    trainer->error = &trainer->error_store;
    dunlin__net_init(&trainer->net, &trainer->counter.hooks);
    atomic_init(&trainer->is_stopping, false);
    atomic_init(&trainer->owner, 0);
    if (!copy_class_weights(trainer, &taken)) {
        dunlin__trainer_free(trainer);
        return dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0, "no memory for weights of classes");
    }
    *out_trainer = trainer;
    return DUNLIN_OK;
}

void dunlin__trainer_unprepare_train(dunlin_trainer *trainer)
{
    if (trainer->swap != NULL) {
        trainer->swap->free_fn(trainer->swap);
    }
    trainer->swap = NULL;
    dunlin__program_free(&trainer->train);
    trainer->train_bytes = 0;
    trainer->arena_bytes = 0;
}

void dunlin__trainer_unprepare(dunlin_trainer *trainer)
{
    dunlin__trainer_unprepare_train(trainer);
    dunlin__program_free(&trainer->infer);
    const size_t n_outputs = dunlin__net_n_outputs(&trainer->net);
    dunlin__free_array(&trainer->counter.hooks, trainer->losses, n_outputs,
                       sizeof *trainer->losses);
    dunlin__free_array(&trainer->counter.hooks, trainer->output_metrics, n_outputs,
                       sizeof *trainer->output_metrics);
    trainer->losses = NULL;
    trainer->output_metrics = NULL;
    dunlin__net_free(&trainer->net);
    dunlin__net_init(&trainer->net, &trainer->counter.hooks);
    trainer->arena_bytes = 0;
}

void dunlin__property_free(const dunlin_alloc *alloc, dunlin_property *property)
{
    dunlin__free_array(alloc, property->block, property->bytes, 1);
}

void dunlin__properties_free(const dunlin_trainer *trainer, dunlin_properties *properties)
{
    const dunlin_alloc *alloc = &trainer->counter.hooks;
    for (size_t i = 0; i < properties->n; i++) {
        dunlin__property_free(alloc, &properties->items[i]);
    }
    dunlin__free_array(alloc, properties->items, properties->capacity, sizeof *properties->items);
    *properties = (dunlin_properties){.items = NULL};
}

void dunlin__trainer_free(dunlin_trainer *trainer)
{
    if (trainer->arena.base != NULL) {
        dunlin__arena_close(&trainer->arena);
    }
    dunlin__threads_close(&trainer->workers);
    dunlin__properties_free(trainer, &trainer->properties);
    dunlin__free_array(&trainer->counter.hooks, trainer->class_weights,
                       (size_t)trainer->options.n_class_weights, sizeof *trainer->class_weights);
    dunlin__ladder_free(trainer);
    dunlin__trainer_unprepare(trainer);
    const dunlin_alloc base = trainer->base;
    dunlin__free_array(&base, trainer, 1, sizeof *trainer);
}

void dunlin__trainer_begin(const dunlin_trainer *trainer)
{
    dunlin__error_clear(trainer->error);
}

dunlin_status dunlin__trainer_check(const dunlin_trainer *trainer)
{
    if (trainer->is_torn) {
        return dunlin__fail(trainer->error, DUNLIN_STATE, "trainer", 0,
                            "a step ended after weights had changed, or a checkpoint broke off "
                            "while it was taken over, so the weights are a mixture: load a "
                            "checkpoint that is whole, or set every weight");
    }
    return DUNLIN_OK;
}

void dunlin__trainer_tear(dunlin_trainer *trainer)
{
    trainer->is_torn = true;
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        trainer->train.step->params[i].n_set = 0;
    }
}
