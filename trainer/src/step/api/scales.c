/*
 * scales.c - the exponents of a trainer in integers: what an application may read of them, and how
 * it gives a parameter one.
 *
 * Invariant: nothing here moves an exponent while a step runs.
 */
#include "scales.h"

#include "calibrate.h"
#include "integer/int_emit.h"
#include "step/context/context.h"
#include "step/context/guard.h"
#include "step/run/values.h"
#include "weights.h"

#include <dunlin/trainer_advanced.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

int64_t dunlin__scales_n_clipped(const dunlin_trainer *trainer)
{
    int64_t n = 0;
    const bool is_there = trainer->precision != NULL && trainer->arena.base != NULL;
    const dunlin_integer_site *sites =
        is_there ? dunlin__values_sites(&trainer->train, &trainer->arena) : NULL;
    const dunlin_range *ranges =
        is_there ? dunlin__values_ranges(&trainer->train, &trainer->arena) : NULL;
    for (size_t i = 0; is_there && i < trainer->train.step->n_sites; i++) {
        n += sites != NULL ? sites[i].n_clipped : ranges[i].n_clipped;
    }
    return n;
}

int32_t dunlin_trainer_n_scales(const dunlin_trainer *trainer)
{
    return dunlin__precision_is_whole(trainer->precision) ? (int32_t)trainer->train.step->n_sites
                                                          : 0;
}

/* Which input of which node a site of errors is of; each has one for its own error and one for the
 * sum with what came before. */
static void name_error(const dunlin_net *net, uint32_t error, dunlin_scale_info *out)
{
    uint32_t edge = error / 2;
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        if (edge < node->n_inputs) {
            out->name = net->values[node->inputs[edge]].name;
            out->kind = error % 2 == 0 ? DUNLIN_SCALE_ERROR : DUNLIN_SCALE_ERROR_SUM;
            return;
        }
        edge -= node->n_inputs;
    }
}

static void name_site(const dunlin_net *net, uint32_t site, dunlin_scale_info *out)
{
    const uint32_t first = dunlin__integer_first_site(net);
    if (site < first) {
        out->name = net->params[site].name;
        out->kind = DUNLIN_SCALE_PARAMETER;
    } else if (site < first + net->n_values) {
        out->name = net->values[site - first].name;
        out->kind = DUNLIN_SCALE_VALUE;
    } else if (site < dunlin__integer_loss_site(net)) {
        name_error(net, site - first - (uint32_t)net->n_values, out);
    } else {
        out->name = "loss";
        out->kind = DUNLIN_SCALE_LOSS;
    }
}

dunlin_status dunlin_trainer_scale(const dunlin_trainer *trainer, int32_t index,
                                   dunlin_scale_info *out_info)
{
    dunlin_scale_info info = DUNLIN_SCALE_INFO_INIT;
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    if (index < 0 || index >= dunlin_trainer_n_scales(trainer)) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no scale %" PRId32 " among %" PRId32, index,
                            dunlin_trainer_n_scales(trainer));
    }
    DUNLIN_TRY(dunlin__struct_check(out_info, "dunlin_scale_info", trainer->error));
    const dunlin_integer_site *site =
        &dunlin__values_sites(&trainer->train, &trainer->arena)[index];
    name_site(&trainer->net, (uint32_t)index, &info);
    info.exponent = site->exponent;
    info.is_known = site->is_known != 0;
    info.n_raised = site->n_raised;
    info.n_lowered = site->n_lowered;
    info.n_clipped = site->n_clipped;
    dunlin__struct_give(&info, sizeof info, out_info);
    return DUNLIN_OK;
}

dunlin_status dunlin_model_check_precision(const dunlin_model *model, const char *precision,
                                           dunlin_error *out_error)
{
    const dunlin_precision *found = NULL;
    dunlin__error_clear(out_error);
    if (model == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "trainer", 0, "model is NULL");
    }
    DUNLIN_TRY(dunlin__precision_find(precision, &found, out_error));
    return found != NULL
               ? dunlin__precision_check(found, &model->net, DUNLIN_LOSS_CROSS_ENTROPY, out_error)
               : DUNLIN_OK;
}

static dunlin_status begin_parameter(dunlin_trainer *trainer, int32_t index, float largest,
                                     float *out_unit)
{
    if (index < 0 || (size_t)index >= trainer->net.n_params || out_unit == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no parameter %" PRId32 " among %zu, or nowhere to put its "
                            "unit",
                            index, trainer->net.n_params);
    }
    *out_unit = 0.0F;
    if (!dunlin__precision_is_whole(trainer->precision)) {
        return DUNLIN_OK;
    }
    if (!(largest >= 0.0F) || !isfinite(largest)) {
        return dunlin__fail(trainer->error, DUNLIN_NUMERIC, "trainer", 0,
                            "the largest value of '%.100s' is %g; it must be finite, and 0 or more",
                            trainer->net.params[index].name, (double)largest);
    }
    dunlin__values_fit(&trainer->train, &trainer->arena, (uint32_t)index, largest);
    dunlin__values_clear(&trainer->train, &trainer->arena, &trainer->net, (uint32_t)index);
    dunlin__calibrate_again(trainer);
    *out_unit = dunlin__values_unit(&trainer->train, &trainer->arena, (uint32_t)index);
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_begin_parameter(dunlin_trainer *trainer, int32_t index, float largest,
                                             float *out_unit)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, begin_parameter(trainer, index, largest, out_unit));
}
