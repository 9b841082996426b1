/*
 * storage.c - whether a model can be stored in fewer bits, without a trainer.
 */
#include "step/context/options.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

dunlin_status dunlin_model_check_storage(const dunlin_model *model, dunlin_storage storage,
                                         dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    if (model == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0, "model is NULL");
    }
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.storage = storage;
    DUNLIN_TRY(dunlin__trainer_check_storage(&options, error));
    if (storage == DUNLIN_STORAGE_EXACT) {
        return DUNLIN_OK;
    }
    const dunlin_step_build_options build = {
        .mode = DUNLIN_EMIT_TRAIN, .is_fused = true, .storage = storage};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_step_graph *graph = NULL;
    const dunlin_status status = dunlin__step_build(&model->net, &build, &alloc, &graph, error);
    dunlin__step_graph_destroy(graph);
    return status;
}
