/*
 * weights.c - reads and sets parameters: by name, and as one flat row of numbers that can be moved
 * piece by piece.
 *
 * Invariant: outside a parameter has ONNX's shape and order, inside the layout its kernels read;
 * both hold the same floats, bit for bit. Nothing that is not finite gets in.
 */
#include "weights.h"

#include "calibrate.h"
#include "step/context/context.h"
#include "step/context/guard.h"
#include "step/run/layout.h"
#include "step/run/values.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

float *dunlin__trainer_floats(const dunlin_trainer *trainer, uint32_t tensor)
{
    return dunlin__program_floats(&trainer->train, &trainer->arena, tensor);
}

int64_t dunlin_trainer_n_weights(const dunlin_trainer *trainer, dunlin_weights_kind kind)
{
    return dunlin__flat_count(&trainer->net, kind);
}

static void reset_optimizer(dunlin_trainer *trainer)
{
    trainer->step = 0;
    dunlin__trainer_forget_rows(trainer);
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_step_param *param = &trainer->train.step->params[i];
        const uint32_t state[] = {param->momentum, param->square};
        for (size_t k = 0; k < sizeof state / sizeof state[0]; k++) {
            if (state[k] != DUNLIN_STEP_NONE) {
                memset(dunlin__trainer_floats(trainer, state[k]), 0,
                       (size_t)trainer->net.params[i].n_elements * sizeof(float));
            }
        }
    }
    dunlin__calibrate_again(trainer);
}

/* Values of one parameter from outside. A torn trainer is whole again when the last of all has
 * been set: with weights that belong together, and an optimiser that has seen nothing. */
static void set_piece(dunlin_trainer *trainer, const dunlin_flat_piece *piece, const float *values)
{
    dunlin_step_param *params = trainer->train.step->params;
    dunlin_step_param *param = &params[piece->param];
    dunlin__values_set(&trainer->train, &trainer->arena, &trainer->net, piece->param, piece->first,
                       piece->n, values);
    if (!trainer->is_torn) {
        return;
    }
    const int64_t end = piece->first + piece->n;
    if (piece->first <= param->n_set && end > param->n_set) {
        param->n_set = end;
    }
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        if (params[i].n_set < trainer->net.params[i].n_elements) {
            return;
        }
    }
    reset_optimizer(trainer);
    trainer->is_torn = false;
    if (trainer->swap != NULL) {
        trainer->swap->file.has_lost = false;
    }
}

dunlin_status dunlin_trainer_get_weights(const dunlin_trainer *trainer, dunlin_weights_kind kind,
                                         int64_t first, int64_t n, float *out_values)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__flat_check(&trainer->net, kind, first, n, out_values, trainer->error));
    for (int64_t done = 0; done < n;) {
        const dunlin_flat_piece piece =
            dunlin__flat_piece(&trainer->net, kind, first + done, n - done);
        dunlin__values_load(&trainer->train, &trainer->arena, &trainer->net, piece.param,
                            piece.first, piece.n, out_values + done);
        done += piece.n;
    }
    return DUNLIN_OK;
}

static dunlin_status set_weights(dunlin_trainer *trainer, dunlin_weights_kind kind, int64_t first,
                                 int64_t n, const float *values)
{
    DUNLIN_TRY(dunlin__flat_check(&trainer->net, kind, first, n, values, trainer->error));
    DUNLIN_TRY(dunlin__flat_check_finite("the weights", n, values, trainer->error));
    for (int64_t done = 0; done < n;) {
        const dunlin_flat_piece piece =
            dunlin__flat_piece(&trainer->net, kind, first + done, n - done);
        set_piece(trainer, &piece, values + done);
        done += piece.n;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_set_weights(dunlin_trainer *trainer, dunlin_weights_kind kind,
                                         int64_t first, int64_t n, const float *values)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, set_weights(trainer, kind, first, n, values));
}

int32_t dunlin_trainer_n_parameters(const dunlin_trainer *trainer)
{
    return (int32_t)trainer->net.n_params;
}

dunlin_status dunlin_trainer_parameter(const dunlin_trainer *trainer, int32_t index,
                                       dunlin_parameter_info *out_info)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    if (index < 0 || (size_t)index >= trainer->net.n_params || out_info == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no parameter %" PRId32 " among %zu", index,
                            trainer->net.n_params);
    }
    const dunlin_net_param *param = &trainer->net.params[index];
    *out_info = (dunlin_parameter_info){.name = param->name,
                                        .shape = param->shape,
                                        .n_elements = param->n_elements,
                                        .role = param->role};
    return DUNLIN_OK;
}

static dunlin_status find_param(const dunlin_trainer *trainer, const char *name, int64_t n,
                                const float *values, uint32_t *out_index)
{
    if (name == NULL || values == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a parameter's name and a buffer are needed");
    }
    for (uint32_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_net_param *param = &trainer->net.params[i];
        if (strcmp(param->name, name) != 0) {
            continue;
        }
        if (param->n_elements != n) {
            return dunlin__fail(trainer->error, DUNLIN_MISMATCH, "trainer", 0,
                                "parameter \"%.100s\" has %" PRId64 " elements, not %" PRId64, name,
                                param->n_elements, n);
        }
        *out_index = i;
        return DUNLIN_OK;
    }
    return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                        "there is no parameter \"%.100s\"", name);
}

dunlin_status dunlin_trainer_get_parameter(const dunlin_trainer *trainer, const char *name,
                                           float *out_values, int64_t n)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    uint32_t index = 0;
    DUNLIN_TRY(find_param(trainer, name, n, out_values, &index));
    dunlin__values_load(&trainer->train, &trainer->arena, &trainer->net, index, 0, n, out_values);
    return DUNLIN_OK;
}

static dunlin_status set_parameter(dunlin_trainer *trainer, const char *name, const float *values,
                                   int64_t n)
{
    uint32_t index = 0;
    DUNLIN_TRY(find_param(trainer, name, n, values, &index));
    DUNLIN_TRY(dunlin__flat_check_finite(name, n, values, trainer->error));
    set_piece(trainer, &(dunlin_flat_piece){.param = index, .n = n}, values);
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_set_parameter(dunlin_trainer *trainer, const char *name,
                                           const float *values, int64_t n)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, set_parameter(trainer, name, values, n));
}

static dunlin_status copy_weights_to_slot(dunlin_trainer *trainer, int32_t slot)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (slot < 0 || slot >= trainer->options.n_gradient_slots) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no slot %" PRId32 " among %" PRId32, slot,
                            trainer->options.n_gradient_slots);
    }
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_step_param *param = &trainer->train.step->params[i];
        if (param->slots[slot] != DUNLIN_STEP_NONE) {
            memcpy(dunlin__trainer_floats(trainer, param->slots[slot]),
                   dunlin__trainer_floats(trainer, param->tensor),
                   (size_t)trainer->net.params[i].n_elements * sizeof(float));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_copy_weights_to_slot(dunlin_trainer *trainer, int32_t slot)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, copy_weights_to_slot(trainer, slot));
}

void dunlin__trainer_forget_rows(const dunlin_trainer *trainer)
{
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const uint32_t rows = trainer->train.step->params[i].rows;
        if (rows != DUNLIN_STEP_NONE) {
            memset(dunlin__trainer_floats(trainer, rows), DUNLIN_ROW_UNKNOWN,
                   (size_t)trainer->train.step->tensors[rows].n_elements);
        }
    }
}

void dunlin_trainer_reset_optimizer(dunlin_trainer *trainer)
{
    if (dunlin__trainer_enter(trainer) != DUNLIN_OK) {
        return;
    }
    atomic_store(&trainer->is_stopping, false);
    if (dunlin__trainer_check(trainer) == DUNLIN_OK) {
        reset_optimizer(trainer);
    }
    (void)dunlin__trainer_leave(trainer, DUNLIN_OK);
}
