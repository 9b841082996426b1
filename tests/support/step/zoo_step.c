/*
 * zoo_step.c - a ready-made network, built and lowered.
 */
#include "zoo_step.h"

dunlin_status zoo_step_open(const char *name, zoo_step *out_step, dunlin_error *error)
{
    return zoo_step_open_for(name, NULL, out_step, error);
}

dunlin_status zoo_step_open_for(const char *name, const char *isa, zoo_step *out_step,
                                dunlin_error *error)
{
    const dunlin_step_build_options build = {
        .mode = DUNLIN_EMIT_TRAIN, .is_fused = true, .has_momentum = true};
    *out_step = (zoo_step){.model = NULL};
    dunlin_alloc_counter_init(&out_step->counter, NULL);
    const dunlin_alloc *hooks = &out_step->counter.hooks;
    dunlin_status status = dunlin_model_from_zoo(name, NULL, NULL, &out_step->model, error);
    if (status == DUNLIN_OK) {
        status = dunlin__step_build(&out_step->model->net, &build, hooks, &out_step->step, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__lower(out_step->step, dunlin__kernels_select(isa), 1, false, hooks,
                               &out_step->lowered, error);
    }
    return status;
}

void zoo_step_close(zoo_step *step)
{
    dunlin__lowered_free(&step->lowered);
    dunlin__step_graph_destroy(step->step);
    dunlin_model_destroy(step->model);
}
