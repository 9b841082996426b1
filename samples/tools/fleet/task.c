/*
 * task.c - the task file of a run's server, from the flags.
 */
#include "fleet.h"

#include <dunlin/several.h>

/* Of the device that has most. */
static json_int_t most_examples(const fleet_world *world)
{
    int64_t most = 1;
    for (int64_t i = 0; i < dunlin_partition_n_clients(world->partition); i++) {
        int64_t n = 0;
        (void)dunlin_partition_indices(world->partition, i, &n);
        most = n > most ? n : most;
    }
    return (json_int_t)most;
}

/* What judges models, and which of them stay. */
static void add_judges(const fleet_flags *flags, json_t *task)
{
    if (flags->has_rollback) {
        (void)json_object_set_new(task, "rollback", json_real(flags->rollback));
    }
    if (flags->target_accuracy > 0) {
        (void)json_object_set_new(task, "target_accuracy", json_real(flags->target_accuracy));
    }
    if (flags->patience > 0) {
        (void)json_object_set_new(task, "patience", json_integer((json_int_t)flags->patience));
    }
    if (flags->judge_every > 1) {
        (void)json_object_set_new(task, "judge_every",
                                  json_integer((json_int_t)flags->judge_every));
    }
    if (flags->keep_every > 0) {
        (void)json_object_set_new(task, "keep_every", json_integer((json_int_t)flags->keep_every));
    }
}

/* An example's image as the network takes it: the first of two, where an example is a row of both.
 */
static dunlin_shape image_of(const fleet_world *world)
{
    const dunlin_shape shape = dunlin_dataset_shape(world->dataset);
    dunlin_model_input input = DUNLIN_MODEL_INPUT_INIT;
    const bool has_image = dunlin_model_n_inputs(world->model) > 1 &&
                           dunlin_model_get_input(world->model, 0, &input) == DUNLIN_OK &&
                           input.shape.n_dims == 3;
    return has_image ? input.shape : shape;
}

int fleet_task_write(const fleet_flags *flags, const fleet_world *world, const char *path)
{
    const dunlin_shape shape = image_of(world);
    const bool has_speeches = data_is_speeches(&flags->choice);
    /* has neither image nor channels */
    const bool is_text = data_is_text(&flags->choice) || has_speeches;
    json_t *plan =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:b}", "epochs", (json_int_t)flags->epochs, "batch",
                  (json_int_t)world->batch, "lr", flags->lr, "momentum", flags->momentum,
                  "lr_decay", flags->lr_decay, "evaluate", flags->evaluates ? 1 : 0);
    json_t *orders = fleet_orders_json(flags);
    (void)json_object_update(plan, orders);
    json_decref(orders);
    json_t *task = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:s, s:I, s:o}", "population",
        flags->population, "task", "train", "model", flags->model, "image",
        (json_int_t)shape.dims[1], "channels", (json_int_t)(is_text ? 0 : shape.dims[0]), "classes",
        (json_int_t)(is_text ? dunlin_model_n_outputs(world->model)
                             : dunlin_dataset_n_classes(world->dataset)),
        "rounds", (json_int_t)flags->n_rounds, "cohort", (json_int_t)flags->cohort, "clients",
        flags->devices_file != NULL || flags->buffered != NULL ? (json_int_t)0
                                                               : (json_int_t)flags->n_clients,
        "over_select", flags->over_select, "deadline_s", flags->deadline_s, "seed",
        (json_int_t)flags->seed, "algorithm", flags->algorithm, "evaluate_every",
        (json_int_t)flags->evaluate_every, "plan", plan);
    /* The devices are the fleet's own: none counts for more examples than there are. */
    (void)json_object_set_new(task, "weight_cap", json_integer(most_examples(world)));
    fleet_strategy_json(flags, task);
    fleet_compress_json(flags, task, plan);
    fleet_precision_json(flags, task, plan);
    fleet_dp_json(flags, task);
    fleet_unequal_json(flags, task, plan);
    fleet_secagg_json(flags, task);
    add_judges(flags, task);
    if (has_speeches) {
        (void)json_object_set_new(task, "sequence", json_integer((json_int_t)shape.dims[0]));
        (void)json_object_set_new(task, "vocabulary",
                                  json_integer((json_int_t)dunlin_model_vocabulary(world->model)));
    }
    if (flags->local != NULL) {
        (void)json_object_set_new(task, "local", json_string(flags->local));
    }
    int status =
        task != NULL && json_dump_file(task, path, JSON_INDENT(2)) == 0 ? EXIT_OK : EXIT_FAILED;
    json_decref(task);
    return status == EXIT_OK ? EXIT_OK : program_fail(&fleet_program, "%s cannot be written", path);
}
