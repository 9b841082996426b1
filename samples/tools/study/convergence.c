/*
 * convergence.c - accuracy over epochs and time at the batch sizes that each policy affords in the
 * same budget; exact batch norm against ghost statistics.
 *
 * The learning rate goes with the batch (Goyal et al. 2017): RATE * batch / 32, at most MOST_RATE,
 * after a warm-up of a twentieth of the steps.
 */
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RATE 0.02
#define MOST_RATE 0.08
#define MOST_BATCH 256 /* where any batch fits */
#define GHOST_BATCH 64

static const char *const columns[] = {"model",        "dataset",      "variant",  "policy",
                                      "budget_bytes", "batch",        "lr",       "seed",
                                      "epoch",        "examples",     "steps",    "test_accuracy",
                                      "test_loss",    "train_loss",   "n_slices", "peak_bytes",
                                      "is_synthetic", "time_train_s", NULL};

/* What is trained on what. */
typedef struct task {
    const char *model, *dataset;
    int32_t image, channels;
    int64_t n_quick, n_quick_test; /* examples with --quick */
    int64_t quick_epochs, epochs;
    const char *budget; /* of the ideal step of batch 32 */
    bool has_batch_norm;
} task;

static const task tasks[] = {
    {"lenet5", "fashion_mnist", 28, 1, 3000, 1000, 4, 6, "100%", false},
    {"cnn_bn", "cifar10", 32, 3, 1000, 300, 3, 12, "100%", true},
};
#define N_TASKS (sizeof tasks / sizeof tasks[0])

/* One run. */
typedef struct curve_run {
    const task *task;
    dunlin_policy policy;
    int64_t ghost_slice; /* 0: exact */
    int64_t batch;       /* 0: what the policy affords */
    uint64_t budget_bytes, seed;
    char variant[64];
    double lr;
} curve_run;

static bool find_batch(study *at, const study_subject *subject, curve_run *run)
{
    dunlin_trainer_options options =
        study_options(at, subject, run->policy, run->budget_bytes, STUDY_BATCH);
    dunlin_error error = {0};
    if (run->batch == 0 && dunlin_trainer_max_batches(subject->model, &options, &run->budget_bytes,
                                                      1, &run->batch, NULL, &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    run->batch = run->batch > MOST_BATCH ? MOST_BATCH : run->batch;
    run->lr = RATE * (double)run->batch / STUDY_BATCH;
    run->lr = run->lr > MOST_RATE ? MOST_RATE : run->lr;
    return true;
}

static json_t *begin_row(const curve_run *run, const dunlin_dataset *data)
{
    json_t *row = json_object();
    row_set_text(row, "model", run->task->model);
    row_set_text(row, "dataset", dunlin_dataset_title(data));
    row_set_text(row, "variant", run->variant);
    row_set_text(row, "policy", policy_name(run->policy));
    row_set_int(row, "budget_bytes", (int64_t)run->budget_bytes);
    row_set_int(row, "batch", run->batch);
    row_set_int(row, "seed", (int64_t)run->seed);
    row_set_int(row, "is_synthetic", dunlin_dataset_is_synthetic(data) ? 1 : 0);
    return row;
}

/* An epoch in two halves, each followed by an evaluation that is not in the time. */
static dunlin_status train(study *at, dunlin_trainer *trainer, const curve_run *run,
                           const dunlin_dataset *data, const dunlin_dataset *test, int64_t epochs)
{
    dunlin_source source;
    dunlin_source test_source;
    dunlin_dataset_source(data, &source);
    dunlin_dataset_source(test, &test_source);
    const int64_t epoch_steps = (source.n_examples + run->batch - 1) / run->batch;
    const dunlin_schedule schedule = {.struct_size = sizeof schedule,
                                      .kind = DUNLIN_SCHEDULE_COSINE,
                                      .warmup_steps = epochs * epoch_steps / 20,
                                      .total_steps = epochs * epoch_steps,
                                      .min_lr = 0.0};
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    dunlin_fit_cursor cursor = {0};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    fit.epochs = epochs;
    fit.max_steps = (epoch_steps + 1) / 2;
    double train_ms = 0.0;
    int64_t n_seen = 0;
    dunlin_status status = dunlin_trainer_set_schedule(trainer, &schedule);
    while (status == DUNLIN_OK && !cursor.is_done && !study_has_failed(at)) {
        dunlin_metrics trained = {0};
        dunlin_metrics tested = {0};
        const double begin_ms = clock_ms();
        status = dunlin_trainer_fit(trainer, &source, &fit, &cursor, &trained);
        train_ms += clock_ms() - begin_ms;
        n_seen += trained.n_examples;
        if (status == DUNLIN_OK) {
            status =
                dunlin_trainer_evaluate(trainer, &test_source, 0, test_source.n_examples, &tested);
        }
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_get_report(trainer, &report);
        }
        json_t *row = begin_row(run, data);
        row_set_real(row, "lr", run->lr);
        row_set_real(row, "epoch", (double)n_seen / (double)source.n_examples);
        row_set_int(row, "examples", n_seen);
        row_set_int(row, "steps", dunlin_trainer_n_steps(trainer));
        row_set_real(row, "test_accuracy", tested.accuracy);
        row_set_real(row, "test_loss", tested.loss);
        row_set_real(row, "train_loss", trained.loss);
        row_set_int(row, "n_slices", report.n_slices);
        row_set_int(row, "peak_bytes", (int64_t)report.peak_bytes);
        row_set_real(row, "time_train_s", train_ms / 1e3);
        study_add_row(at, row);
    }
    return status;
}

static void run_on(study *at, const study_subject *subject, curve_run *run,
                   const dunlin_dataset *data, const dunlin_dataset *test)
{
    dunlin_error error = {0};
    dunlin_trainer *trainer = NULL;
    if (!find_batch(at, subject, run)) {
        return;
    }
    if (run->batch == 0) {
        study_add_row(at, begin_row(run, data)); /* not even one example */
        return;
    }
    dunlin_trainer_options options =
        study_options(at, subject, run->policy, run->budget_bytes, run->batch);
    options.seed = run->seed;
    options.lr = (float)run->lr;
    options.ghost_statistics = run->ghost_slice > 0;
    options.micro_batch = run->ghost_slice;
    if (dunlin_trainer_create(subject->model, &options, &trainer, &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return;
    }
    const study_flags *flags = study_flags_of(at);
    const int64_t epochs = flags->is_quick ? run->task->quick_epochs : run->task->epochs;
    const dunlin_status status = train(at, trainer, run, data, test, epochs);
    if (status == DUNLIN_NUMERIC) {
        study_add_row(at, begin_row(run, data)); /* it diverged: no accuracy from here on */
    } else if (status != DUNLIN_OK) {
        study_fail_with(at, subject->name, dunlin_trainer_last_error(trainer));
    }
    dunlin_trainer_destroy(trainer);
}

static void do_job(study *at, curve_run *run, const char *dataset, const study_budget *budget)
{
    const study_flags *flags = study_flags_of(at);
    const task *what = run->task;
    const bool is_own = flags->dataset != NULL;
    int32_t image = study_image(at, what->model, what->image, what->image);
    image = image == 0 ? what->image : image;
    const study_subject *subject =
        study_open_subject(at, what->model, image, is_own ? 0 : what->channels, is_own ? 0 : 10);
    dunlin_dataset *data = NULL;
    dunlin_dataset *test = NULL;
    if (subject != NULL) {
        data = study_open_data(at, subject, dataset, DUNLIN_SPLIT_TRAIN,
                               flags->is_quick ? what->n_quick : 0);
    }
    if (data != NULL) {
        test = study_open_data(at, subject, dataset, DUNLIN_SPLIT_TEST,
                               flags->is_quick ? what->n_quick_test : 0);
    }
    if (test != NULL) {
        run->budget_bytes = budget == NULL ? 0 : study_bytes(budget, subject);
        run_on(at, subject, run, data, test);
    }
    dunlin_dataset_close(test);
    dunlin_dataset_close(data);
}

static void offer_job(study *at, curve_run *run, const study_budget *budget)
{
    const study_flags *flags = study_flags_of(at);
    const char *dataset = flags->folder == NULL ? "synthetic" : run->task->dataset;
    dataset = flags->dataset != NULL ? flags->choice.name : dataset;
    char note[128];
    json_t *inputs =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:I, s:b}", "model", run->task->model,
                  "dataset", dataset, "variant", run->variant, "policy", policy_name(run->policy),
                  "batch", (json_int_t)run->batch, "ghost", (json_int_t)run->ghost_slice, "budget",
                  budget == NULL ? "none" : budget->text, "run", (json_int_t)run->seed, "quick",
                  flags->is_quick);
    (void)snprintf(note, sizeof note, "convergence %s %s, seed %" PRIu64, run->task->model,
                   run->variant, run->seed);
    if (study_begin_job(at, inputs, run->task->has_batch_norm ? 400 : 100, note)) {
        do_job(at, run, dataset, budget);
        study_end_job(at);
    }
}

static void offer_policies(study *at, const task *what, uint64_t seed)
{
    dunlin_policy policies[STUDY_MAX_LIST];
    study_budget budgets[STUDY_MAX_LIST];
    const int32_t n_policies = study_policies(
        at, study_flags_of(at)->is_quick ? "none,pool,auto" : "none,pool,melon,sage,auto",
        policies);
    const int32_t n_budgets = study_budgets(at, what->budget, budgets);
    for (int32_t b = 0; b < n_budgets; b++) {
        for (int32_t p = 0; p < n_policies; p++) {
            curve_run run = {.task = what, .policy = policies[p], .seed = seed};
            (void)snprintf(run.variant, sizeof run.variant, "%.24s in %.24s",
                           policy_name(policies[p]), budgets[b].text);
            offer_job(at, &run, &budgets[b]);
        }
    }
}

static void offer_ghosts(study *at, const task *what, uint64_t seed)
{
    static const int64_t slices[] = {0, 32, 8, 2};
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
        curve_run run = {
            .task = what, .batch = GHOST_BATCH, .ghost_slice = slices[i], .seed = seed};
        if (slices[i] == 0) {
            (void)snprintf(run.variant, sizeof run.variant, "exact batch norm");
        } else {
            (void)snprintf(run.variant, sizeof run.variant, "ghost of %" PRId64, slices[i]);
        }
        offer_job(at, &run, NULL);
    }
}

/* All runs of a task with one seed. */
static void offer_task(study *at, const task *what)
{
    const study_flags *flags = study_flags_of(at);
    for (int64_t s = 0; s < flags->n_seeds; s++) {
        offer_policies(at, what, flags->seed + (uint64_t)s);
        if (what->has_batch_norm) {
            offer_ghosts(at, what, flags->seed + (uint64_t)s);
        }
    }
}

/* With --dataset: the networks of --models, else the study's own that take the data set, else one
 * that does. */
static void offer_own(study *at)
{
    const char *models[STUDY_MAX_LIST];
    const int32_t n = study_models(at, "lenet5,cnn_bn", models);
    for (int32_t m = 0; m < n; m++) {
        task what = {models[m], "", 0, 0, 3000, 1000, 4, 6, "100%", false};
        for (size_t t = 0; t < N_TASKS; t++) {
            what = strcmp(tasks[t].model, models[m]) == 0 ? tasks[t] : what;
        }
        offer_task(at, &what);
    }
}

static int run(study *at)
{
    const study_flags *flags = study_flags_of(at);
    if (flags->dataset != NULL) {
        offer_own(at);
        return EXIT_OK;
    }
    for (size_t t = 0; t < N_TASKS; t++) {
        bool is_asked = flags->n_models == 0;
        for (int32_t m = 0; m < flags->n_models; m++) {
            is_asked = is_asked || strcmp(flags->model_list[m], tasks[t].model) == 0;
        }
        if (is_asked) {
            offer_task(at, &tasks[t]);
        }
    }
    return EXIT_OK;
}

const study_kind study_convergence = {
    .name = "convergence",
    .title = "Accuracy at the batch each policy affords",
    .question = "Does the larger batch that a planner affords learn better, or sooner?",
    .method = "Every policy trains with the largest batch that it fits into the same budget (at "
              "most 256). SGD with momentum 0.9; the rate is 0.02 x batch / 32, at most 0.08 "
              "(Goyal et al. 2017), warm-up over a twentieth of the steps, then a cosine. "
              "Evaluation is not in the time. Ghost: batch 64, statistics of so many examples.",
    .columns = columns,
    .run_fn = run,
};
