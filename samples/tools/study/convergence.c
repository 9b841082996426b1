/*
 * convergence.c - accuracy over epochs and time at the batch sizes that each policy affords in the
 * same budget; exact batch norm against ghost statistics; rates by a rule (Goyal et al. 2017), or
 * tuned for each batch on a validation split.
 */
#include "central.h"

#include <inttypes.h>
#include <string.h>

#define GHOST_BATCH 64
#define EPOCHS 6

static const char *const columns[] = {"model",
                                      "dataset",
                                      "variant",
                                      "policy",
                                      "budget_bytes",
                                      "batch",
                                      "lr",
                                      "seed",
                                      "epoch",
                                      "examples",
                                      "steps",
                                      "test_accuracy",
                                      "test_loss",
                                      "train_loss",
                                      "n_slices",
                                      "peak_bytes",
                                      "is_synthetic",
                                      "time_train_s",
                                      "ghost",
                                      "batch_rule",
                                      "price",
                                      "rate_rule",
                                      "tuned_on_seed",
                                      "rate_is_edge",
                                      "train_examples",
                                      "test_examples",
                                      "operand_bytes",
                                      "end",
                                      "time_cpu_s",
                                      "energy_j",
                                      NULL};

/* What is trained on what. */
typedef struct task {
    const char *model, *dataset;
    int32_t image, channels;
    int64_t n_quick, n_quick_test; /* examples with --quick */
    int64_t quick_epochs, epochs;
    const char *budget; /* of the ideal step of batch 32 */
} task;

static const task tasks[] = {
    {"lenet5", "fashion_mnist", 28, 1, 3000, 1000, 4, EPOCHS, "100%"},
    {"cnn_bn", "cifar10", 32, 3, 1000, 300, 3, 12, "100%"},
};
#define N_TASKS (sizeof tasks / sizeof tasks[0])

/* Those that a study of its own goes through beside the policies, on a network with batch norm. */
static const int64_t ghost_slices[] = {0, 32, 8, 2};
#define N_GHOSTS ((int32_t)(sizeof ghost_slices / sizeof ghost_slices[0]))

static const study_subject *open_subject(study *at, const task *what)
{
    const study_flags *flags = study_flags_of(at);
    const bool is_own = flags->dataset != NULL;
    int32_t image = study_image(at, what->model, what->image, what->image);
    image = image == 0 ? what->image : image;
    if (what->channels == 0 && !is_own) {
        dunlin_zoo_options options = {.image = image};
        const data_choice choice = {.name = what->dataset};
        data_fill_zoo(&choice, what->model, &options);
        options.classes = options.classes == 0 ? 10 : options.classes;
        return study_open_subject(at, what->model, options.image, options.channels,
                                  options.classes);
    }
    return study_open_subject(at, what->model, image, is_own ? 0 : what->channels, is_own ? 0 : 10);
}

static json_t *inputs_of(const study *at, const central_run *run)
{
    const study_flags *flags = study_flags_of(at);
    const grid_variant *variant = run->variant;
    char held_out[STUDY_VALIDATION_BYTES] = "";
    if (run->has_held_out) {
        study_validation_text(&run->held_out, held_out);
    }
    json_t *inputs =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:I, s:f, s:s, s:b, s:b}", "model",
                  run->model, "dataset", run->dataset, "variant", variant->label, "policy",
                  policy_name(variant->policy), "batch", (json_int_t)variant->batch, "ghost",
                  (json_int_t)variant->ghost, "budget", (json_int_t)variant->budget_bytes,
                  "held_out", held_out, "run", (json_int_t)run->seed, "lr", run->rate.lr,
                  "rate_rule", run->rate.rule, "tuning", run->is_tuning, "quick", flags->is_quick);
    json_t *more = json_pack(
        "{s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:s}", "epochs", (json_int_t)run->epochs, "looks",
        (json_int_t)run->looks, "most", (json_int_t)run->max_examples, "most_test",
        (json_int_t)run->max_test, "schedule", flags->schedule == NULL ? "" : flags->schedule,
        "warmup", flags->has_warmup ? flags->warmup_percent : -1.0, "decay", flags->weight_decay,
        "augment", flags->augment == NULL ? "" : flags->augment);
    (void)json_object_update(inputs, more);
    json_decref(more);
    return inputs;
}

static void offer(study *at, const study_subject *subject, const central_run *run)
{
    char note[160];
    const int64_t weight = study_weight(run->model);
    (void)snprintf(note, sizeof note, "convergence %s %s, rate %g, seed %" PRIu64,
                   study_model_name(run->model), run->variant->label, run->rate.lr, run->seed);
    if (study_begin_job(at, inputs_of(at, run), 100 * (weight > 4 ? 4 : weight), note)) {
        central_train(at, subject, run);
        study_end_job(at);
    }
}

/* A run of the task, without rate and seed. */
static central_run run_of(const study *at, const task *what, const grid_variant *variant)
{
    const study_flags *flags = study_flags_of(at);
    central_run run = {.variant = variant, .model = what->model, .dataset = what->dataset};
    run.held_out = study_validation(flags, what->dataset);
    run.has_held_out = flags->validation != NULL || grid_is_tuned(flags);
    run.epochs = flags->is_quick ? what->quick_epochs : what->epochs;
    run.epochs = flags->epochs > 0 ? flags->epochs : run.epochs;
    run.max_examples = flags->is_quick ? what->n_quick : 0;
    run.max_examples = flags->max_examples > 0 ? flags->max_examples : run.max_examples;
    run.max_test = flags->is_quick ? what->n_quick_test : 0;
    run.looks = study_is_grid(flags) ? 1 : 2;
    return run;
}

/* The tuning runs of a batch and slice: any exact policy has the same bits, so one plan does. */
static void tune(study *at, const study_subject *subject, const task *what,
                 const grid_variant *variant, const char *group)
{
    const study_flags *flags = study_flags_of(at);
    grid_variant plain = *variant;
    plain.policy = DUNLIN_POLICY_AUTO;
    plain.budget_bytes = 0;
    (void)snprintf(plain.label, sizeof plain.label, "tuning of %.80s", group);
    for (int32_t r = 0; grid_is_tuned(flags) && variant->batch > 0 && r < flags->n_rates; r++) {
        central_run run = run_of(at, what, &plain);
        run.is_tuning = true;
        run.group = group;
        run.seed = flags->seed;
        run.rate = (grid_rate){.lr = flags->rate_list[r], .rule = "tuning"};
        offer(at, subject, &run);
    }
}

static void offer_runs(study *at, const study_subject *subject, const task *what,
                       const grid_variant *variant, const char *group)
{
    const study_flags *flags = study_flags_of(at);
    grid_rate rates[2];
    int32_t n = grid_rates(at, group, central_rule(variant->batch), rates);
    if (variant->batch == 0) {
        rates[0] = (grid_rate){.rule = "none"}; /* a row says that it does not fit */
        n = 1;
    }
    for (int32_t i = 0; i < n; i++) {
        for (int64_t s = 0; s < flags->n_seeds; s++) {
            central_run run = run_of(at, what, variant);
            run.seed = grid_first_seed(flags) + (uint64_t)s;
            run.rate = rates[i];
            offer(at, subject, &run);
        }
    }
}

/* Examples to train on, where a price asks how many steps they make; else any number. -1: the study
 * has failed. */
static int64_t count_examples(study *at, const study_subject *subject, const task *what)
{
    const study_flags *flags = study_flags_of(at);
    if (flags->n_rules == flags->n_batches) {
        return INT64_MAX;
    }
    const grid_variant none = {.batch = 0};
    const central_run run = run_of(at, what, &none);
    dunlin_dataset *set =
        study_open_split(at, subject, what->dataset, DUNLIN_SPLIT_TRAIN, run.max_examples,
                         run.has_held_out ? &run.held_out : NULL);
    const int64_t n = set == NULL ? -1 : dunlin_dataset_n_examples(set);
    dunlin_dataset_close(set);
    return n;
}

/* The settings of the flags; without any that asks for others, those of the study with ghosts. */
static int32_t list_variants(study *at, const study_subject *subject, const task *what,
                             grid_variant out[GRID_MOST])
{
    const study_flags *flags = study_flags_of(at);
    const grid_lists lists = {.policies =
                                  flags->is_quick ? "none,pool,auto" : "none,pool,melon,sage,auto",
                              .budgets = what->budget,
                              .n_train = count_examples(at, subject, what)};
    if (lists.n_train < 0) {
        return -1;
    }
    int32_t n = grid_variants(at, subject, &lists, out);
    const bool has_ghosts = !study_is_grid(flags) && flags->n_rules == 0 && n >= 0 &&
                            flags->n_policies == 0 && study_has_batch_norm(subject);
    for (int32_t g = 0; has_ghosts && g < N_GHOSTS && n < GRID_MOST; g++) {
        grid_variant *made = &out[n++];
        *made = (grid_variant){.policy = DUNLIN_POLICY_AUTO, .ghost = ghost_slices[g]};
        made->rule = (study_rule){.text = "64", .batch = GHOST_BATCH};
        if (!grid_plan(at, subject, lists.n_train, made)) {
            return -1;
        }
        (void)snprintf(made->label, sizeof made->label, "exact batch norm");
        if (made->ghost > 0) {
            (void)snprintf(made->label, sizeof made->label, "ghost of %" PRId64, made->ghost);
        }
    }
    return n;
}

static void offer_task(study *at, const task *what)
{
    grid_variant variants[GRID_MOST];
    const study_subject *subject = open_subject(at, what);
    const int32_t n = subject == NULL ? 0 : list_variants(at, subject, what, variants);
    for (int32_t v = 0; v < n; v++) {
        char group[192];
        (void)snprintf(group, sizeof group, "%s, %s, batch %" PRId64 ", ghost %" PRId64,
                       study_model_name(what->model), what->dataset, variants[v].batch,
                       variants[v].ghost);
        tune(at, subject, what, &variants[v], group);
        offer_runs(at, subject, what, &variants[v], group);
    }
}

/* A network with its data set: of the study's own, or another. */
static task task_of(const study *at, const char *model)
{
    const study_flags *flags = study_flags_of(at);
    task what = {model, "", 0, 0, 3000, 1000, 4, EPOCHS, "100%"};
    for (size_t t = 0; t < N_TASKS; t++) {
        what = strcmp(tasks[t].model, model) == 0 ? tasks[t] : what;
    }
    what.dataset = study_default_dataset(flags, model);
    if (what.image == 0 && flags->dataset == NULL && !study_is_file(model) &&
        strcmp(model, "har_mlp") != 0 && strcmp(model, "bert_small") != 0) {
        what.image = 32;
    }
    return what;
}

static int run(study *at)
{
    const char *models[STUDY_MAX_LIST];
    const int32_t n = study_models(at, "lenet5,cnn_bn", models);
    for (int32_t m = 0; m < n && !study_has_failed(at); m++) {
        const task what = task_of(at, models[m]);
        if (what.dataset == NULL) {
            study_tell_no_data(at, models[m]);
        } else {
            offer_task(at, &what);
        }
    }
    return study_has_failed(at) ? EXIT_FAILED : EXIT_OK;
}

/* The tables beside the rows. */
static const char *const of_subject[] = {"model", "dataset", NULL};
static const char *const of_setting[] = {"variant", NULL};
static const char *const of_totals[] = {
    "examples", "steps", "operand_bytes", "time_train_s", "time_cpu_s", "energy_j", NULL};
static const char *const of_runs[] = {"model",
                                      "dataset",
                                      "variant",
                                      "policy",
                                      "ghost",
                                      "budget_bytes",
                                      "batch",
                                      "batch_rule",
                                      "price",
                                      "lr",
                                      "rate_rule",
                                      "tuned_on_seed",
                                      "rate_is_edge",
                                      "seed",
                                      "train_examples",
                                      "test_examples",
                                      "is_synthetic",
                                      "end",
                                      "epoch",
                                      "accuracy",
                                      "late_accuracy",
                                      "best_accuracy",
                                      "loss",
                                      "test_error",
                                      "target",
                                      "epoch_to_target",
                                      "examples",
                                      "steps",
                                      "operand_bytes",
                                      "operand_bytes_to_target",
                                      "n_slices",
                                      "peak_bytes",
                                      "time_train_s",
                                      "time_cpu_s",
                                      "energy_j",
                                      "time_cpu_s_to_target",
                                      "energy_j_to_target",
                                      NULL};
static const char *const of_summary[] = {"model",
                                         "dataset",
                                         "variant",
                                         "policy",
                                         "ghost",
                                         "budget_bytes",
                                         "batch",
                                         "batch_rule",
                                         "price",
                                         "lr",
                                         "rate_rule",
                                         "tuned_on_seed",
                                         "rate_is_edge",
                                         "test_examples",
                                         "is_synthetic",
                                         "runs",
                                         "failed",
                                         "mean_accuracy",
                                         "sd_accuracy",
                                         "se_accuracy",
                                         "test_error",
                                         "mean_late_accuracy",
                                         "mean_loss",
                                         "target",
                                         "reached",
                                         "mean_epoch_to_target",
                                         "mean_operand_bytes",
                                         "mean_operand_bytes_to_target",
                                         "peak_bytes",
                                         "time_cpu_s",
                                         "time_cpu_s_to_target",
                                         "energy_j",
                                         "energy_j_to_target",
                                         NULL};
static const grid_names names = {.x = "epoch",
                                 .accuracy = "test_accuracy",
                                 .loss = "test_loss",
                                 .subject = of_subject,
                                 .setting = of_setting,
                                 .totals = of_totals,
                                 .runs = of_runs,
                                 .summary = of_summary};

static void finish(study *at)
{
    grid_add_tuning(at);
    grid_add_summary(at, &names);
}

const study_kind study_convergence = {
    .name = "convergence",
    .title = "Accuracy at the batch each policy affords",
    .question = "Does the larger batch that a planner affords learn better, or sooner?",
    .method = "Every policy trains with the largest batch that it fits into the same budget (at "
              "most 256), or with those of --batches. SGD with momentum 0.9; the rate is 0.02 x "
              "batch / 32, at most 0.08 (Goyal et al. 2017), or the best of --lr on a validation "
              "split, tuned on one seed and run on others; warm-up over a twentieth of the steps, "
              "then a cosine, unless flags say otherwise. Networks with batch norm leave the last "
              "batch of an epoch out unless it is whole. "
              "Evaluation is not in the time. Ghost: batch 64, statistics of so many examples.",
    .columns = columns,
    .run_fn = run,
    .is_parallel = true,
    .finish_fn = finish,
};
