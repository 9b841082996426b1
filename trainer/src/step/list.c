/*
 * list.c - every parameter with what it is for and what happens to it: of a model and options, and
 * of a trainer.
 */
#include "../net/uses.h"
#include "choice.h"
#include "handle.h"

#include <mem/support.h>

#include <string.h>

static void tell(const dunlin_net *net, uint32_t param, bool is_trained,
                 dunlin_parameter_fn entry_fn, void *ctx)
{
    const dunlin_net_param *from = &net->params[param];
    const dunlin_parameter_entry entry = {
        .struct_size = sizeof entry,
        .name = from->name,
        .shape = from->shape,
        .n_elements = from->n_elements,
        .use = dunlin__net_use(net, param),
        .is_trained = is_trained,
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
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a list of parameters needs a model and a function");
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
        tell(&model->net, i, choice.is_trained, entry_fn, ctx);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_list_parameters(const dunlin_trainer *trainer,
                                             dunlin_parameter_fn entry_fn, void *ctx)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    if (entry_fn == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a list of parameters needs a function");
    }
    for (uint32_t i = 0; i < trainer->net.n_params; i++) {
        tell(&trainer->net, i, trainer->train.step->params[i].is_trained, entry_fn, ctx);
    }
    return DUNLIN_OK;
}
