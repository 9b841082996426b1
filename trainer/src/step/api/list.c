/*
 * list.c - lists every parameter with its use and whether it is trained: of a model and options,
 * and of a trainer.
 */
#include "net/uses.h"
#include "step/build/choice.h"
#include "step/context/context.h"
#include "step/context/guard.h"
#include "step/context/options.h"

#include <mem/support.h>

#include <string.h>

static void tell(const dunlin_net *net, uint32_t param, const dunlin_choice *choice,
                 const char *group_name, dunlin_parameter_fn entry_fn, void *ctx)
{
    const dunlin_net_param *from = &net->params[param];
    const dunlin_parameter_entry entry = {
        .struct_size = sizeof entry,
        .name = from->name,
        .shape = from->shape,
        .n_elements = from->n_elements,
        .use = dunlin__net_use(net, param),
        .is_trained = choice->is_trained,
        .group = choice->group,
        .group_name = group_name,
        .lr_factor = choice->lr_factor,
        .decay_factor = choice->decay_factor,
    };
    entry_fn(ctx, &entry);
}

dunlin_status dunlin_model_list_parameters(const dunlin_model *model,
                                           const dunlin_trainer_options *options,
                                           dunlin_parameter_fn entry_fn, void *ctx,
                                           dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (model == NULL || entry_fn == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "trainer", 0, "%s is NULL",
                            model == NULL ? "model" : "entry_fn");
    }
    dunlin_step_build_options build = {.mode = DUNLIN_EMIT_TRAIN};
    if (options != NULL) {
        dunlin_trainer_options taken;
        DUNLIN_TRY(dunlin__trainer_take_options(options, &taken, out_error));
        dunlin__choice_options(&taken, &build);
    }
    DUNLIN_TRY(dunlin__choice_check(&model->net, &build, out_error));
    for (uint32_t i = 0; i < model->net.n_params; i++) {
        const dunlin_choice choice = dunlin__choose(&model->net, &build, i);
        char buffer[DUNLIN_GROUP_NAME_BYTES];
        const char *group_name = "";
        if (choice.group >= 0) {
            const dunlin_parameter_group group = dunlin__choice_group(build.groups, choice.group);
            group_name = dunlin__choice_group_name(&group, choice.group, buffer);
        }
        tell(&model->net, i, &choice, group_name, entry_fn, ctx);
    }
    return DUNLIN_OK;
}

/* What a trainer made of a parameter. */
static dunlin_choice choice_of(const dunlin_trainer *trainer, uint32_t param)
{
    const dunlin_step_graph *graph = trainer->train.step;
    const dunlin_step_param *from = &graph->params[param];
    dunlin_choice choice = {.is_trained = from->is_trained, .group = from->group};
    if (!choice.is_trained) {
        return choice;
    }
    const bool has_group = choice.group >= 0;
    choice.lr_factor = has_group ? graph->groups[choice.group].lr_factor : 1.0F;
    choice.decay_factor = has_group ? graph->groups[choice.group].decay_factor : 1.0F;
    if (trainer->options.no_norm_decay && dunlin__choice_is_bias_or_norm(&trainer->net, param)) {
        choice.decay_factor = 0.0F;
    }
    return choice;
}

dunlin_status dunlin_trainer_list_parameters(const dunlin_trainer *trainer,
                                             dunlin_parameter_fn entry_fn, void *ctx)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    if (entry_fn == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0, "entry_fn is NULL");
    }
    for (uint32_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_choice choice = choice_of(trainer, i);
        tell(&trainer->net, i, &choice,
             choice.group >= 0 ? trainer->train.step->groups[choice.group].name : "", entry_fn,
             ctx);
    }
    return DUNLIN_OK;
}
