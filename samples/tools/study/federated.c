/*
 * federated.c - the real client and the real server over HTTPS: rounds and bytes to a target
 * accuracy for several batch sizes on the devices, splits and algorithms.
 *
 * The rate goes with the batch as in convergence.c. Rounds are deterministic: the cohort follows
 * from the seed after a barrier, and no device is faster than another.
 */
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <fleet/fleet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RATE 0.04
#define MOST_RATE 0.08

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
                                      NULL};

/* How large a fleet is, and how long it runs. */
typedef struct extent {
    int64_t n_clients, cohort, rounds, epochs, n_examples;
    double target;
} extent;

/* What is federated. */
typedef struct task {
    const char *model, *dataset;
    int32_t image, channels, classes;
    uint64_t budget_bytes; /* 0: that of --budgets, or what the ideal step of batch 32 takes */
    const char *folder;    /* it is left out where this is missing; NULL: a synthetic stand-in */
    bool is_slow;          /* to read: with --quick it is left out */
    extent whole, quick;
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

/* One run of a fleet. `policy` is asked for the batch where it is 0. */
typedef struct fleet_case {
    const task *task;
    const char *partition, *algorithm;
    char rule[32];
    int64_t batch;
    dunlin_policy policy;
    uint64_t seed;
    const char *dataset;
    double lr;
    uint64_t budget_bytes;
} fleet_case;

#define OWN_CLIENTS_SHARE 20 /* a device has so many examples at least, where there are enough */

/* The fleet of a data set of --dataset: as large as its examples allow. */
static extent own_extent(const study_data *own, const extent *like, int64_t cohort_share)
{
    extent size = *like;
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

static const extent *extent_of(const study *at, const task *of)
{
    return study_flags_of(at)->is_quick ? &of->quick : &of->whole;
}

/* The largest batch the budget holds under the policy, but no more than a device has examples. */
static bool find_batch(study *at, fleet_case *what)
{
    const task *of = what->task;
    const extent *size = extent_of(at, of);
    const int64_t most = size->n_examples / size->n_clients;
    const study_subject *subject = NULL;
    what->budget_bytes = of->budget_bytes;
    if (what->batch == 0 || what->budget_bytes == 0) {
        subject = study_open_subject(at, of->model, of->image, of->channels, of->classes);
        if (subject == NULL) {
            return false;
        }
        study_budget budgets[STUDY_MAX_LIST];
        (void)study_budgets(at, "100%", budgets);
        what->budget_bytes =
            what->budget_bytes > 0 ? what->budget_bytes : study_bytes(&budgets[0], subject);
    }
    if (what->batch == 0) {
        dunlin_error error = {0};
        dunlin_trainer_options options =
            study_options(at, subject, what->policy, what->budget_bytes, STUDY_BATCH);
        if (dunlin_trainer_max_batches(subject->model, &options, &what->budget_bytes, 1,
                                       &what->batch, NULL, &error) != DUNLIN_OK) {
            study_fail_with(at, of->model, &error);
            return false;
        }
        what->batch = what->batch > most ? most : what->batch;
    }
    what->lr = RATE * (double)what->batch / STUDY_BATCH;
    what->lr = what->lr > MOST_RATE ? MOST_RATE : what->lr;
    return true;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void add_rows(study *at, const fleet_case *what, const json_t *result)
{
    const study_flags *flags = study_flags_of(at);
    const json_t *rounds = json_object_get(result, "rounds");
    const json_t *setup = json_object_get(result, "setup");
    const extent *size = extent_of(at, what->task);
    const double target = flags->target > 0.0 ? flags->target : size->target;
    double weights = 0.0; /* handed out and back, as floats; messages hold more */
    double down = 0.0;
    double up = 0.0;
    double wall = 0.0;
    bool is_reached = false;
    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const json_t *round = json_array_get(rounds, i);
        weights += 2.0 * 4.0 * number_of(result, "params") * number_of(round, "participants");
        down += number_of(round, "bytes_down");
        up += number_of(round, "bytes_up");
        wall += number_of(round, "wall_s");
        is_reached = is_reached || number_of(round, "accuracy") >= target;
        json_t *row = json_object();
        row_set_text(row, "model", what->task->model);
        row_set_text(row, "dataset", json_string_value(json_object_get(setup, "dataset")));
        row_set_text(row, "partition", what->partition);
        row_set_text(row, "algorithm", what->algorithm);
        row_set_text(row, "batch_rule", what->rule);
        row_set_int(row, "batch", what->batch);
        row_set_real(row, "lr", what->lr);
        row_set_int(row, "budget_bytes", (int64_t)what->budget_bytes);
        row_set_int(row, "clients", size->n_clients);
        row_set_int(row, "cohort", size->cohort);
        row_set_int(row, "epochs", size->epochs);
        row_set_int(row, "seed", (int64_t)what->seed);
        row_set_int(row, "round", (int64_t)number_of(round, "round"));
        row_set_real(row, "accuracy", number_of(round, "accuracy"));
        row_set_real(row, "loss", number_of(round, "loss"));
        row_set_int(row, "participants", (int64_t)number_of(round, "participants"));
        row_set_int(row, "dropped", (int64_t)number_of(round, "dropped"));
        row_set_int(row, "weights_bytes_sum", (int64_t)weights);
        row_set_int(row, "peak_bytes", (int64_t)number_of(round, "peak_bytes_max"));
        row_set_real(row, "target", target);
        row_set_int(row, "is_reached", is_reached ? 1 : 0);
        row_set_int(row, "is_synthetic", json_is_true(json_object_get(setup, "synthetic")) ? 1 : 0);
        row_set_int(row, "wire_down_bytes", (int64_t)down);
        row_set_int(row, "wire_up_bytes", (int64_t)up);
        row_set_real(row, "time_wall_s", wall);
        study_add_row(at, row);
    }
}

/* The same flags as on the command line of dunlin-fleet, so a run can be repeated by hand. */
static void do_job(study *at, fleet_case *what)
{
    const study_flags *flags = study_flags_of(at);
    const task *of = what->task;
    const extent *size = extent_of(at, of);
    char text[10][32];
    if (!find_batch(at, what) || what->batch == 0) {
        return;
    }
    (void)snprintf(text[0], sizeof text[0], "%" PRId64, size->n_clients);
    (void)snprintf(text[1], sizeof text[1], "%" PRId64, size->cohort);
    (void)snprintf(text[2], sizeof text[2], "%" PRId64, size->rounds);
    (void)snprintf(text[3], sizeof text[3], "%" PRId64, size->n_examples);
    (void)snprintf(text[4], sizeof text[4], "%" PRId64, what->batch);
    (void)snprintf(text[5], sizeof text[5], "%" PRIu64, what->seed);
    (void)snprintf(text[6], sizeof text[6], "%.6g", what->lr);
    (void)snprintf(text[7], sizeof text[7], "%" PRId64,
                   flags->n_threads > 2 ? flags->n_threads : 2);
    (void)snprintf(text[8], sizeof text[8], "%" PRIu64, what->budget_bytes);
    (void)snprintf(text[9], sizeof text[9], "%" PRId64, size->epochs);
    const char *argv[] = {"dunlin-fleet",   "--serve",       "--clients",   text[0],
                          "--cohort",       text[1],         "--rounds",    text[2],
                          "--max-examples", text[3],         "--batch",     text[4],
                          "--seed",         text[5],         "--lr",        text[6],
                          "--threads",      text[7],         "--budget",    text[8],
                          "--model",        of->model,       "--dataset",   what->dataset,
                          "--partition",    what->partition, "--algorithm", what->algorithm,
                          "--epochs",       text[9],         "--data",      flags->folder};
    const int argc = (int)(sizeof argv / sizeof argv[0]) - (flags->folder == NULL ? 2 : 0);
    fleet_flags fleet;
    json_t *result = NULL;
    if (fleet_parse(argc, (char **)(void *)argv, &fleet).is_done) {
        study_fail(at, "the fleet refuses its flags");
        return;
    }
    fleet.is_quiet = true;
    if (fleet_run(&fleet, "", &result) != EXIT_OK) {
        study_fail(at,
                   study_is_interrupted() ? "interrupted; --resume goes on"
                                          : "a fleet of batch %" PRId64 " failed",
                   what->batch);
        return;
    }
    add_rows(at, what, result);
    json_decref(result);
}

static void offer_job(study *at, fleet_case *what)
{
    const study_flags *flags = study_flags_of(at);
    char note[160];
    what->dataset = flags->folder == NULL ? "synthetic" : what->task->dataset;
    what->dataset = flags->dataset != NULL ? flags->choice.name : what->dataset;
    json_t *inputs =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:b}", "model", what->task->model,
                  "dataset", what->dataset, "partition", what->partition, "algorithm",
                  what->algorithm, "rule", what->rule, "batch", (json_int_t)what->batch, "run",
                  (json_int_t)what->seed, "target", flags->target, "quick", flags->is_quick);
    (void)snprintf(note, sizeof note, "federated %s, %s, %s, %s, seed %" PRIu64, what->dataset,
                   what->partition, what->algorithm, what->rule, what->seed);
    if (study_begin_job(at, inputs, flags->is_quick ? 100 : 500, note)) {
        do_job(at, what);
        study_end_job(at);
    }
}

/* The batches of the flags or the study's, then the largest with a planner and without. */
static void offer_batches(study *at, fleet_case *what)
{
    int64_t batches[STUDY_MAX_LIST];
    const int32_t n =
        study_batches(at, study_flags_of(at)->is_quick ? "16" : "8,16,32,64", batches);
    for (int32_t b = 0; b < n; b++) {
        what->batch = batches[b];
        (void)snprintf(what->rule, sizeof what->rule, "%" PRId64, batches[b]);
        offer_job(at, what);
    }
    static const dunlin_policy largest[] = {DUNLIN_POLICY_NONE, DUNLIN_POLICY_AUTO};
    for (size_t i = 0; i < sizeof largest / sizeof largest[0]; i++) {
        what->batch = 0;
        what->policy = largest[i];
        (void)snprintf(what->rule, sizeof what->rule, "most, %s", policy_name(largest[i]));
        offer_job(at, what);
    }
}

/* Its model is asked for, and its data are there or have a stand-in. */
static bool is_asked(const study_flags *flags, const task *of)
{
    if (of->folder != NULL) {
        char path[OUTPUT_PATH_BYTES];
        const int n = flags->folder == NULL
                          ? -1
                          : snprintf(path, sizeof path, "%s/%s", flags->folder, of->folder);
        if (n < 0 || n >= (int)sizeof path || access(path, F_OK) != 0) {
            return false;
        }
    }
    bool is_named = flags->n_models == 0;
    for (int32_t m = 0; m < flags->n_models; m++) {
        is_named = is_named || strcmp(flags->model_list[m], of->model) == 0;
    }
    return is_named;
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

static const char *const partitions[] = {"iid", "dirichlet:0.3", "writers"};
static const char *const algorithms[] = {"fedavg", "fedprox:0.1"};

/* Every partition that the data set has: by writer, user or client only where they are known. */
static void offer_own(study *at)
{
    const study_flags *flags = study_flags_of(at);
    const study_data *own = &flags->own;
    const char *models[STUDY_MAX_LIST];
    const int32_t n = study_models(at, study_data_model(flags), models);
    const bool has_writers =
        own->n_natural_clients > 0 || strcmp(flags->choice.name, "synthetic") == 0;
    for (int32_t m = 0; m < n; m++) {
        const task of = {.model = models[m],
                         .dataset = flags->choice.name,
                         .whole = own_extent(own, &tasks[0].whole, 10),
                         .quick = own_extent(own, &tasks[0].quick, 4)};
        for (int64_t s = 0; s < flags->n_seeds; s++) {
            for (size_t i = 0; i < 6; i++) {
                fleet_case what = {.task = &of,
                                   .partition = partitions[i % 3],
                                   .algorithm = algorithms[i / 3],
                                   .seed = flags->seed + (uint64_t)s};
                if (has_writers || i % 3 != 2) {
                    offer_batches(at, &what);
                }
            }
        }
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
        for (int64_t s = 0; is_asked(flags, &tasks[t]) && s < flags->n_seeds; s++) {
            const size_t n = count_cases(flags, &tasks[t]);
            for (size_t i = 0; i < n; i++) {
                fleet_case what = {.task = &tasks[t],
                                   .partition = partitions[i % 3],
                                   .algorithm = algorithms[i / 3],
                                   .seed = flags->seed + (uint64_t)s};
                offer_batches(at, &what);
            }
        }
    }
    return EXIT_OK;
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
              "number of examples.",
    .columns = columns,
    .run_fn = run,
};
