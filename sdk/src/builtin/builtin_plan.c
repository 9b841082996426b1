/*
 * builtin_plan.c - converts the orders of the round's plan to options of the trainer.
 *
 * Invariant: an order that this learner cannot follow makes the load fail and is named; no order is
 * ignored.
 */
#include "builtin.h"

#include <dunlin/trainer_advanced.h>
#include <mem/checked.h>

#include <stdio.h>
#include <string.h>

#define MOST_STEPS (INT64_C(1) << 60) /* of a run: as far as a schedule counts */

static dunlin_status fail(dunlin_builtin *builtin, dunlin_status status, const char *text)
{
    return dunlin__fail(&builtin->error, status, "learner", 0, "%s", text);
}

/* What SCAFFOLD's variates become is computed from plain steps at one rate for all. */
static dunlin_status check_plain(dunlin_builtin *builtin, const dunlin_task *task)
{
    const dunlin_trainer_options *options = &builtin->pool->options;
    if (options->n_groups > 0) {
        return dunlin__fail(&builtin->error, DUNLIN_UNSUPPORTED, "learner", 0,
                            "SCAFFOLD takes one rate for all parameters; the pool's options have "
                            "%d groups",
                            (int)options->n_groups);
    }
    if (task->parameters != NULL || task->schedule != NULL || task->gradient_clip_norm > 0.0F ||
        task->gradient_clip_value > 0.0F || task->optimizer != DUNLIN_TASK_OPTIMIZER_SGD) {
        return fail(builtin, DUNLIN_UNSUPPORTED,
                    "SCAFFOLD takes plain steps at one rate; the round's plan has groups, a "
                    "schedule, Adam, or clips gradients");
    }
    return DUNLIN_OK;
}

/* With a learning rate only the products are: all else is as in float32. */
static bool is_in_integers(const dunlin_task *task)
{
    return task->kind == DUNLIN_TASK_TRAIN && task->precision != NULL && !(task->lr > 0.0F);
}

/* What a training in integers has not, by the plan's words; what else it has not the trainer names.
 */
static dunlin_status check_precision(dunlin_builtin *builtin, const dunlin_task *task)
{
    const struct {
        bool is_given;
        const char *what;
    } rows[] = {
        {task->correction != NULL, "SCAFFOLD"},
        {task->proximal_mu > 0.0F, "FedProx"},
        {task->schedule != NULL, "a schedule of the learning rate"},
        {task->mixup > 0.0F, "mixed examples"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_given) {
            return dunlin__fail(&builtin->error, DUNLIN_UNSUPPORTED, "learner", 0,
                                "the round's plan has precision %.15s and %s", task->precision,
                                rows[i].what);
        }
    }
    return DUNLIN_OK;
}

/* A rate that is absent would otherwise be the pool's, or none at all, without a word. */
static dunlin_status check_rate(dunlin_builtin *builtin, const dunlin_task *task)
{
    if (task->kind != DUNLIN_TASK_TRAIN) {
        return DUNLIN_OK;
    }
    if (is_in_integers(task)) {
        return check_precision(builtin, task);
    }
    if (!(task->lr > 0.0F)) {
        return dunlin__fail(&builtin->error, DUNLIN_ARGUMENT, "learner", 0,
                            "the round's plan has no learning rate above 0 (it is %g)",
                            (double)task->lr);
    }
    return task->correction != NULL ? check_plain(builtin, task) : DUNLIN_OK;
}

static dunlin__hook hook_of(const dunlin_task *task)
{
    if (task->kind == DUNLIN_TASK_TRAIN && task->correction != NULL) {
        return DUNLIN_HOOK_CORRECTION;
    }
    return task->proximal_mu > 0.0F ? DUNLIN_HOOK_PROXIMAL : DUNLIN_HOOK_NONE;
}

static dunlin_status copy_text(dunlin_builtin *builtin, char *out, size_t room, const char *text,
                               const char *what)
{
    if (text == NULL) {
        return DUNLIN_OK;
    }
    const size_t length = strlen(text);
    if (length >= room) {
        return dunlin__fail(&builtin->error, DUNLIN_LIMIT, "learner", 0,
                            "the round's plan has %s of %zu characters; at most %zu are taken",
                            what, length, room - 1);
    }
    memcpy(out, text, length + 1);
    return DUNLIN_OK;
}

static dunlin_status take_group(dunlin_builtin *builtin, const dunlin_task_group *from,
                                dunlin__recipe_group *out)
{
    out->roles = from->roles;
    out->lr_factor = from->lr_factor;
    out->decay_factor = from->decay_factor;
    DUNLIN_TRY(copy_text(builtin, out->name, sizeof out->name, from->name, "a group's name"));
    return copy_text(builtin, out->patterns, sizeof out->patterns, from->patterns,
                     "a group's patterns");
}

static dunlin_status take_parameters(dunlin_builtin *builtin, const dunlin_task_parameters *from,
                                     dunlin__recipe *out)
{
    const dunlin_trainer_options *own = &builtin->pool->options;
    if (own->n_groups > 0 || own->trained != DUNLIN_TRAINED_ALL || own->trained_prefixes != NULL ||
        own->frozen_prefixes != NULL || own->no_norm_decay) {
        return fail(builtin, DUNLIN_UNSUPPORTED,
                    "the round's plan chooses the parameters that are trained, and so do the "
                    "pool's options");
    }
    if (from->n_groups < 0 || from->n_groups > DUNLIN_TASK_GROUPS) {
        return dunlin__fail(&builtin->error, DUNLIN_LIMIT, "learner", 0,
                            "the round's plan has %d groups of parameters; 0 to %d are taken",
                            (int)from->n_groups, DUNLIN_TASK_GROUPS);
    }
    out->has_parameters = true;
    out->no_norm_decay = from->no_norm_decay;
    switch (from->trained) {
    case DUNLIN_TASK_TRAINED_ALL:
        out->trained = DUNLIN_TRAINED_ALL;
        break;
    case DUNLIN_TASK_TRAINED_HEAD:
        out->trained = DUNLIN_TRAINED_HEAD;
        break;
    case DUNLIN_TASK_TRAINED_BIASES_AND_NORMS:
        out->trained = DUNLIN_TRAINED_BIASES_AND_NORMS;
        break;
    }
    out->n_groups = from->n_groups;
    for (int32_t i = 0; i < from->n_groups; i++) {
        DUNLIN_TRY(take_group(builtin, &from->groups[i], &out->groups[i]));
    }
    DUNLIN_TRY(copy_text(builtin, out->trained_prefixes, sizeof out->trained_prefixes,
                         from->trained_prefixes, "prefixes of what is trained"));
    return copy_text(builtin, out->frozen_prefixes, sizeof out->frozen_prefixes,
                     from->frozen_prefixes, "prefixes of what is frozen");
}

/* A device with fewer examples than a batch trains one batch of all it has. */
static dunlin_remainder remainder_of(const dunlin_builtin *builtin, const dunlin_task *task,
                                     int64_t batch)
{
    if (task->remainder == DUNLIN_TASK_REMAINDER_JOIN) {
        return DUNLIN_REMAINDER_JOIN;
    }
    const bool is_dropping = task->remainder == DUNLIN_TASK_REMAINDER_DROP;
    return is_dropping && builtin->source.n_examples >= batch ? DUNLIN_REMAINDER_DROP
                                                              : DUNLIN_REMAINDER_KEEP;
}

/* The plan's storage of a training, unless the app has chosen another for its devices. */
static dunlin_status take_storage(dunlin_builtin *builtin, const dunlin_task *task,
                                  dunlin__recipe *out)
{
    static const dunlin_storage storage_of[] = {[DUNLIN_TASK_STORAGE_EXACT] = DUNLIN_STORAGE_EXACT,
                                                [DUNLIN_TASK_STORAGE_BF16] = DUNLIN_STORAGE_BF16,
                                                [DUNLIN_TASK_STORAGE_INT8] = DUNLIN_STORAGE_INT8};
    const dunlin_storage own = builtin->pool->options.storage;
    if (task->kind != DUNLIN_TASK_TRAIN || task->storage == DUNLIN_TASK_STORAGE_EXACT) {
        return DUNLIN_OK;
    }
    if (task->storage < DUNLIN_TASK_STORAGE_EXACT || task->storage > DUNLIN_TASK_STORAGE_INT8) {
        return dunlin__fail(&builtin->error, DUNLIN_UNSUPPORTED, "learner", 0,
                            "the round's plan has storage %d; this learner knows 0 to %d",
                            (int)task->storage, (int)DUNLIN_TASK_STORAGE_INT8);
    }
    out->storage = storage_of[task->storage];
    if (own != DUNLIN_STORAGE_EXACT && own != out->storage) {
        return dunlin__fail(&builtin->error, DUNLIN_UNSUPPORTED, "learner", 0,
                            "the round's plan has storage %s, and the pool's options have %s",
                            dunlin_storage_name(out->storage), dunlin_storage_name(own));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__builtin_take_plan(dunlin_builtin *builtin, const dunlin_task *task,
                                        dunlin__pool_slot *out_wanted)
{
    memset(out_wanted, 0, sizeof *out_wanted);
    dunlin__recipe *recipe = &out_wanted->recipe;
    DUNLIN_TRY(check_rate(builtin, task));
    if (task->kind == DUNLIN_TASK_TRAIN && task->precision != NULL) {
        DUNLIN_TRY(copy_text(builtin, recipe->precision, sizeof recipe->precision, task->precision,
                             "a precision's name"));
    }
    DUNLIN_TRY(take_storage(builtin, task, recipe));
    recipe->batch = builtin->pool->options.batch;
    if (recipe->batch == 0) {
        recipe->batch = task->batch > 0 ? task->batch : 32;
    }
    recipe->momentum = task->momentum;
    recipe->weight_decay = task->weight_decay;
    recipe->hook = hook_of(task);
    recipe->optimizer = task->optimizer;
    recipe->clip_norm = task->gradient_clip_norm;
    recipe->clip_value = task->gradient_clip_value;
    recipe->is_mixed = task->kind == DUNLIN_TASK_TRAIN && task->mixup > 0.0F;
    if (recipe->is_mixed && (task->has_ignored_label || builtin->pool->options.has_ignore_label)) {
        return fail(builtin, DUNLIN_UNSUPPORTED,
                    "the round's plan mixes examples, and a label is ignored");
    }
    recipe->has_ignored_label = task->has_ignored_label;
    recipe->ignored_label = task->has_ignored_label ? task->ignored_label : 0;
    out_wanted->proximal_mu = task->proximal_mu;
    out_wanted->most = recipe->batch;
    builtin->remainder = remainder_of(builtin, task, recipe->batch);
    if (task->kind == DUNLIN_TASK_TRAIN && builtin->remainder == DUNLIN_REMAINDER_JOIN) {
        out_wanted->most = dunlin_joined_batch(builtin->source.n_examples, recipe->batch);
    }
    return task->parameters != NULL ? take_parameters(builtin, task->parameters, recipe)
                                    : DUNLIN_OK;
}

/* Steps of this round on this device. */
static int64_t count_steps(const dunlin_builtin *builtin, int64_t epoch_steps)
{
    int64_t n = 0;
    if (!dunlin__mul_i64(builtin->epochs, epoch_steps, &n)) {
        n = MOST_STEPS;
    }
    return builtin->max_steps > 0 && builtin->max_steps < n ? builtin->max_steps : n;
}

int64_t dunlin__builtin_round_steps(const dunlin_builtin *builtin)
{
    return count_steps(builtin,
                       dunlin_epoch_steps(builtin->source.n_examples, builtin->slot->recipe.batch,
                                          builtin->remainder));
}

/* a times b, at most MOST_STEPS. */
static int64_t multiply(int64_t a, int64_t b)
{
    int64_t product = 0;
    return dunlin__mul_i64(a, b, &product) && product < MOST_STEPS ? product : MOST_STEPS;
}

/* The run's schedule as this device meets it: see dunlin_task_schedule. */
static dunlin_schedule schedule_of(const dunlin_builtin *builtin, const dunlin_task *task)
{
    const dunlin_task_schedule *from = task->schedule;
    const int64_t epoch_steps = dunlin_epoch_steps(builtin->source.n_examples,
                                                   builtin->slot->recipe.batch, builtin->remainder);
    const int64_t round_steps = dunlin__builtin_round_steps(builtin);
    const int64_t before =
        task->round > 0 && task->round < (uint64_t)MOST_STEPS ? (int64_t)task->round - 1 : 0;
    const int64_t total = multiply(from->n_rounds, round_steps);
    dunlin_schedule schedule = DUNLIN_SCHEDULE_INIT;
    schedule.warmup_steps = from->warmup_steps;
    schedule.period_steps = from->period_steps > 0 ? from->period_steps : epoch_steps;
    schedule.gamma = from->gamma;
    schedule.min_lr = from->min_lr;
    schedule.first_step = -multiply(before, round_steps);
    /* A device with so few steps that the run ends in its warm-up stays in it. */
    schedule.total_steps = total > from->warmup_steps ? total : from->warmup_steps + 1;
    switch (from->kind) {
    case DUNLIN_TASK_SCHEDULE_CONSTANT:
        schedule.kind = DUNLIN_SCHEDULE_CONSTANT;
        break;
    case DUNLIN_TASK_SCHEDULE_STEP:
        schedule.kind = DUNLIN_SCHEDULE_STEP;
        break;
    case DUNLIN_TASK_SCHEDULE_EXPONENTIAL:
        schedule.kind = DUNLIN_SCHEDULE_EXPONENTIAL;
        break;
    case DUNLIN_TASK_SCHEDULE_COSINE:
        schedule.kind = DUNLIN_SCHEDULE_COSINE;
        break;
    case DUNLIN_TASK_SCHEDULE_LINEAR:
        schedule.kind = DUNLIN_SCHEDULE_LINEAR;
        break;
    }
    return schedule;
}

static bool has_changes(const dunlin_task *task)
{
    return task->cutout > 0 || task->shift > 0 || task->mixup > 0.0F || task->noise > 0.0F;
}

/* Examples changed at random: a pipeline over the source, for this load. */
static dunlin_status open_pipeline(dunlin_builtin *builtin, const dunlin_task *task)
{
    const dunlin_shape shape = dunlin_model_input_shape(builtin->pool->model);
    if (shape.n_dims != 3 && (task->flips || task->crops)) {
        return fail(builtin, DUNLIN_UNSUPPORTED,
                    "the round's plan augments images, and the model's inputs are none");
    }
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.is_flip = task->flips;
    options.seed = task->seed;
    if (task->crops) {
        options.is_random_crop = true;
        options.crop_height = (int32_t)shape.dims[1];
        options.crop_width = (int32_t)shape.dims[2];
        options.padding = task->crop_padding;
    }
    if (has_changes(task)) {
        options.cutout = task->cutout;
        options.shift = task->shift;
        options.mixup = task->mixup;
        options.noise = task->noise;
        options.n_classes = (int32_t)dunlin_model_n_outputs(builtin->pool->model);
        options.epoch_steps = dunlin_epoch_steps(builtin->source.n_examples,
                                                 builtin->slot->recipe.batch, builtin->remainder);
    }
    DUNLIN_TRY(dunlin_pipeline_create(&builtin->source, &shape, &options, &builtin->alloc,
                                      &builtin->pipeline, &builtin->error));
    dunlin_pipeline_source(builtin->pipeline, &builtin->trained);
    return DUNLIN_OK;
}

/* In integers the rate is a number of bits, the same for a whole round, and weights keep the range
 * that they begin it with: the next one fits a new range to the new base. */
static dunlin_status set_bits(const dunlin_builtin *builtin, const dunlin_task *task)
{
    char text[16];
    DUNLIN_TRY(dunlin_trainer_set_weight_growth(builtin->slot->trainer, DUNLIN_WEIGHT_GROWTH_NONE));
    (void)snprintf(text, sizeof text, "%d", (int)task->grad_bits);
    return dunlin_trainer_set_grad_bits(builtin->slot->trainer, task->grad_bits != 0 ? text : NULL,
                                        0);
}

static dunlin_status set_rate(dunlin_builtin *builtin, const dunlin_task *task)
{
    dunlin_trainer *trainer = builtin->slot->trainer;
    const dunlin_schedule constant = DUNLIN_SCHEDULE_INIT;
    const dunlin_schedule *schedule = builtin->pool->options.schedule;
    dunlin_schedule of_task;
    if (task->schedule != NULL) {
        of_task = schedule_of(builtin, task);
        schedule = &of_task;
    } else if (schedule == NULL) {
        schedule = &constant;
    }
    DUNLIN_TRY(dunlin_trainer_set_lr(trainer, task->lr));
    return dunlin_trainer_set_schedule(trainer, schedule);
}

dunlin_status dunlin__builtin_begin_plan(dunlin_builtin *builtin, const dunlin_task *task)
{
    builtin->trained = builtin->source;
    if (task->kind != DUNLIN_TASK_TRAIN) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__builtin_pass_error(builtin, is_in_integers(task) ? set_bits(builtin, task)
                                                                        : set_rate(builtin, task)));
    return task->flips || task->crops || has_changes(task) ? open_pipeline(builtin, task)
                                                           : DUNLIN_OK;
}
