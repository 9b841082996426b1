/*
 * federated.c - the real client and the real server over HTTPS: rounds and bytes to a target
 * accuracy for several batch sizes on the devices, splits and algorithms.
 *
 * The rate goes with the batch as in convergence.c, or is tuned for each on a validation split.
 * Rounds are deterministic: the cohort follows from the seed after a barrier, and no device is
 * faster than another.
 */
#include "fleets.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static const char *const columns[] = {"model",
                                      "dataset",
                                      "partition",
                                      "algorithm",
                                      "batch_rule",
                                      "batch",
                                      "lr",
                                      "budget_bytes",
                                      "clients",
                                      "cohort",
                                      "epochs",
                                      "seed",
                                      "round",
                                      "accuracy",
                                      "loss",
                                      "participants",
                                      "dropped",
                                      "weights_bytes_sum",
                                      "peak_bytes",
                                      "target",
                                      "is_reached",
                                      "is_synthetic",
                                      "wire_down_bytes",
                                      "wire_up_bytes",
                                      "time_wall_s",
                                      "policy",
                                      "ghost",
                                      "price",
                                      "rate_rule",
                                      "tuned_on_seed",
                                      "rate_is_edge",
                                      "test_examples",
                                      "end",
                                      "time_cpu_s",
                                      "energy_j",
                                      "operand_bytes",
                                      NULL};

/* What is federated. */
typedef struct task {
    const char *model, *dataset;
    int32_t image, channels, classes;
    uint64_t budget_bytes; /* 0: that of --budgets, or what the ideal step of batch 32 takes */
    const char *folder;    /* it is left out where this is missing; NULL: a synthetic stand-in */
    bool is_slow;          /* to read: with --quick it is left out */
    fleet_extent whole, quick;
} task;

static const task tasks[] = {
    {"lenet5",
     "mnist_writers",
     28,
     1,
     10,
     2 << 20,
     NULL,
     false,
     {100, 10, 60, 1, 60000, 0.95},
     {20, 5, 6, 2, 4000, 0.90}},
    {"har_mlp",
     "wisdm",
     1,
     43,
     6,
     384 << 10,
     "wisdm",
     false,
     {27, 9, 40, 1, 4075, 0.75},
     {27, 9, 6, 2, 4075, 0.60}},
    {"har_mlp",
     "spsw_har",
     1,
     37,
     5,
     384 << 10,
     "spsw-har/DATA",
     true,
     {18, 6, 40, 1, 4250, 0.95},
     {18, 6, 6, 2, 4250, 0.90}},
};
#define N_TASKS (sizeof tasks / sizeof tasks[0])

#define OWN_CLIENTS_SHARE 20 /* a device has so many examples at least, where there are enough */

static const char *const partitions[] = {"iid", "dirichlet:0.3", "writers"};
static const char *const algorithms[] = {"fedavg", "fedprox:0.1"};

/* The fleet of a data set of --dataset: as large as its examples allow. */
static fleet_extent own_extent(const study_data *own, const fleet_extent *like,
                               int64_t cohort_share)
{
    fleet_extent size = *like;
    int64_t n = own->n_examples < size.n_examples ? own->n_examples : size.n_examples;
    size.n_examples = n;
    n /= OWN_CLIENTS_SHARE;
    n = n < size.n_clients ? n : size.n_clients;
    if (own->n_natural_clients > 0 && own->n_natural_clients < n) {
        n = own->n_natural_clients;
    }
    size.n_clients = n < 2 ? 2 : n;
    size.cohort = size.n_clients / cohort_share;
    size.cohort = size.cohort < 2 ? 2 : size.cohort;
    return size;
}

static const fleet_extent *extent_of(const study *at, const task *of)
{
    return study_flags_of(at)->is_quick ? &of->quick : &of->whole;
}

/* Finds what->image, and the largest batch the budget holds under the policy, but no more than a
 * device has examples. */
static bool plan(study *at, const task *of, grid_variant *variant, fleet_case *what)
{
    const study_flags *flags = study_flags_of(at);
    const fleet_extent *size = &what->size;
    const bool is_asked = flags->image != 0 && of->image != 1;
    const int32_t image = is_asked ? (int32_t)flags->image : of->image;
    const study_subject *subject = NULL;
    study_budget budgets[STUDY_MAX_LIST];
    (void)study_budgets(at, "100%", budgets);
    what->image = is_asked ? image : 0;
    if (variant->batch == 0 || of->budget_bytes == 0) {
        subject = study_open_subject(at, of->model, image, of->channels, of->classes);
        if (subject == NULL) {
            return false;
        }
        what->image = subject->side > image && image > 1 ? subject->side : what->image;
    }
    variant->budget_bytes =
        of->budget_bytes > 0 ? of->budget_bytes : study_bytes(&budgets[0], subject);
    if (variant->batch > 0 || subject == NULL) {
        return variant->batch > 0;
    }
    dunlin_error error = {0};
    const dunlin_trainer_options options = grid_options(at, subject, variant, STUDY_BATCH);
    const int64_t most = size->n_examples / size->n_clients;
    if (dunlin_trainer_max_batches(subject->model, &options, &variant->budget_bytes, 1,
                                   &variant->batch, NULL, &error) != DUNLIN_OK) {
        study_fail_with(at, of->model, &error);
        return false;
    }
    variant->batch = variant->batch > most ? most : variant->batch;
    return true;
}

/* The batches of the flags or the study's, then the largest with a planner and without. */
static void offer_batches(study *at, const task *of, fleet_case *what)
{
    static const dunlin_policy largest[] = {DUNLIN_POLICY_NONE, DUNLIN_POLICY_AUTO};
    int64_t batches[STUDY_MAX_LIST];
    const int32_t n =
        study_batches(at, study_flags_of(at)->is_quick ? "16" : "8,16,32,64", batches);
    for (int32_t b = 0; b < n + 2; b++) {
        grid_variant variant = {.batch = b < n ? batches[b] : 0, .price = (double)NAN};
        variant.policy = b < n ? DUNLIN_POLICY_AUTO : largest[b - n];
        if (b < n) {
            (void)snprintf(what->rule, sizeof what->rule, "%" PRId64, batches[b]);
        } else {
            (void)snprintf(what->rule, sizeof what->rule, "most, %s", policy_name(variant.policy));
        }
        if (!plan(at, of, &variant, what)) {
            return;
        }
        what->variant = &variant;
        what->rate = (grid_rate){.lr = fleets_rule(variant.batch), .rule = "rule"};
        if (variant.batch > 0) {
            fleets_offer(at, what);
        }
        what->variant = NULL;
    }
}

/* Its data are there or have a stand-in. */
static bool has_data(const study_flags *flags, const task *of)
{
    char path[OUTPUT_PATH_BYTES];
    const int n = of->folder == NULL || flags->folder == NULL
                      ? -1
                      : snprintf(path, sizeof path, "%s/%s", flags->folder, of->folder);
    return of->folder == NULL || (n > 0 && n < (int)sizeof path && access(path, F_OK) == 0);
}

/* Cases of a seed: three splits with FedAvg, then with FedProx, which a quick study has of writers
 * alone. */
static size_t count_cases(const study_flags *flags, const task *of)
{
    if (!flags->is_quick || of->folder == NULL) {
        return 6;
    }
    return of->is_slow ? 0 : 3;
}

static void offer_task(study *at, const task *of, bool has_writers, size_t n)
{
    const study_flags *flags = study_flags_of(at);
    for (int64_t s = 0; s < flags->n_seeds; s++) {
        for (size_t i = 0; i < n; i++) {
            fleet_case what = {.model = of->model,
                               .dataset = flags->folder == NULL && flags->dataset == NULL
                                              ? "synthetic"
                                              : of->dataset,
                               .partition = partitions[i % 3],
                               .algorithm = algorithms[i / 3],
                               .size = *extent_of(at, of),
                               .seed = flags->seed + (uint64_t)s};
            if (has_writers || i % 3 != 2) {
                offer_batches(at, of, &what);
            }
        }
    }
}

/* Of the study's own tasks, those whose network is asked for: how many were. */
static int32_t offer_tasks(study *at, const char *model)
{
    const study_flags *flags = study_flags_of(at);
    int32_t n_found = 0;
    for (size_t t = 0; t < N_TASKS; t++) {
        if (model != NULL && strcmp(model, tasks[t].model) != 0) {
            continue;
        }
        n_found++;
        const size_t n_cases = count_cases(flags, &tasks[t]);
        if (!has_data(flags, &tasks[t])) {
            study_tell_filter(at, "--data %s: no folder %s for %s",
                              flags->folder == NULL ? "synthetic" : flags->folder, tasks[t].folder,
                              tasks[t].model);
        } else {
            offer_task(at, &tasks[t], true, n_cases);
        }
    }
    return n_found;
}

/* Every partition that the data set has: by writer, user or client only where they are known. */
static void offer_own(study *at)
{
    const study_flags *flags = study_flags_of(at);
    const study_data *own = &flags->own;
    const char *models[STUDY_MAX_LIST];
    const int32_t n = study_models(at, study_data_model(flags), models);
    const bool knows_writers =
        own->n_natural_clients > 0 || strcmp(flags->choice.name, "synthetic") == 0;
    for (int32_t m = 0; m < n; m++) {
        const task of = {.model = models[m],
                         .dataset = flags->choice.name,
                         .image = study_data_image(flags),
                         .whole = own_extent(own, &tasks[0].whole, 10),
                         .quick = own_extent(own, &tasks[0].quick, 4)};
        offer_task(at, &of, knows_writers, 6);
    }
}

static int run(study *at)
{
    const study_flags *flags = study_flags_of(at);
    const char *models[STUDY_MAX_LIST];
    if (study_is_grid(flags)) {
        const int32_t n =
            study_models(at, flags->dataset != NULL ? study_data_model(flags) : "lenet5", models);
        for (int32_t m = 0; m < n && !study_has_failed(at); m++) {
            fleets_offer_grid(at, models[m]);
        }
    } else if (flags->dataset != NULL) {
        offer_own(at);
    } else if (flags->n_models == 0) {
        (void)offer_tasks(at, NULL);
    }
    for (int32_t m = 0; !study_is_grid(flags) && flags->dataset == NULL && m < flags->n_models;
         m++) {
        if (offer_tasks(at, flags->model_list[m]) == 0) {
            fleets_offer_grid(at, flags->model_list[m]); /* none of the study's own */
        }
    }
    return study_has_failed(at) ? EXIT_FAILED : EXIT_OK;
}

/* The tables beside the rows. */
static const char *const of_subject[] = {"model", "dataset", "partition", "algorithm", NULL};
static const char *const of_setting[] = {"batch_rule", NULL};
static const char *const of_totals[] = {
    "weights_bytes_sum", "wire_down_bytes", "wire_up_bytes", "time_wall_s",
    "time_cpu_s",        "energy_j",        "operand_bytes", NULL};
static const char *const of_runs[] = {"model",
                                      "dataset",
                                      "partition",
                                      "algorithm",
                                      "batch_rule",
                                      "policy",
                                      "ghost",
                                      "budget_bytes",
                                      "batch",
                                      "price",
                                      "lr",
                                      "rate_rule",
                                      "tuned_on_seed",
                                      "rate_is_edge",
                                      "seed",
                                      "clients",
                                      "cohort",
                                      "epochs",
                                      "test_examples",
                                      "is_synthetic",
                                      "end",
                                      "round",
                                      "accuracy",
                                      "late_accuracy",
                                      "best_accuracy",
                                      "loss",
                                      "test_error",
                                      "target",
                                      "round_to_target",
                                      "weights_bytes_sum",
                                      "weights_bytes_sum_to_target",
                                      "peak_bytes",
                                      "wire_down_bytes",
                                      "wire_up_bytes",
                                      "wire_down_bytes_to_target",
                                      "wire_up_bytes_to_target",
                                      "time_wall_s",
                                      "time_wall_s_to_target",
                                      "time_cpu_s",
                                      "energy_j",
                                      "operand_bytes",
                                      NULL};
static const char *const of_summary[] = {"model",
                                         "dataset",
                                         "partition",
                                         "algorithm",
                                         "batch_rule",
                                         "policy",
                                         "ghost",
                                         "budget_bytes",
                                         "batch",
                                         "price",
                                         "lr",
                                         "rate_rule",
                                         "tuned_on_seed",
                                         "rate_is_edge",
                                         "clients",
                                         "cohort",
                                         "epochs",
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
                                         "mean_round_to_target",
                                         "mean_weights_bytes_sum",
                                         "mean_weights_bytes_sum_to_target",
                                         "peak_bytes",
                                         "wire_down_bytes",
                                         "wire_up_bytes",
                                         "wire_down_bytes_to_target",
                                         "wire_up_bytes_to_target",
                                         "time_wall_s",
                                         "time_wall_s_to_target",
                                         "time_cpu_s",
                                         "energy_j",
                                         "mean_operand_bytes",
                                         NULL};
static const grid_names names = {.x = "round",
                                 .accuracy = "accuracy",
                                 .loss = "loss",
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

const study_kind study_federated = {
    .name = "federated",
    .title = "Rounds and bytes to a target, federated",
    .question = "Does the batch that the planner affords bring a fleet to its target sooner?",
    .method = "The real client and the real server over HTTPS on this machine: 100 devices, 10 a "
              "round, one local epoch (--quick: 20, 5 and two), SGD with momentum 0.9, each device "
              "with a budget of 2 MiB; activity data, where --data has them: a device for each of "
              "WISDM's 27 users and sp-sw-har's 18 subjects that train (the others test), 9 and 6 "
              "a round, 384 KiB each. The rate is 0.04 x batch / 32, at most 0.08. \"most\": the "
              "largest batch that the "
              "budget holds, without a planner (none) and with it (auto), at most a device's mean "
              "number of examples. With flags of one's own (--lr, --partition, --batches price:F "
              "...): 10 devices, all of them in each round, FedAvg, batches by the planner in the "
              "devices' budgets, rates tuned on a validation split, by one seed for others.",
    .columns = columns,
    .run_fn = run,
    .is_parallel = true,
    .finish_fn = finish,
};
