/*
 * heterogeneity.c - what unequal devices cost: fleets in simulated time whose devices differ in
 * hardware, in state, in their data, in each alone and in all, for several ways to train.
 *
 * The real client, server and training; how long anything takes follows from the file of devices
 * and the roofline's costs, so every number follows from the command.
 */
#include "grid.h"
#include "hetero.h"

#include <fleet/fleet.h>
#include <inttypes.h>
#include <math.h>
#include <memory/loop.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "lenet5"
#define DEADLINE_S 180
#define MOST_WORDS 80
#define WORD_BYTES 64
#define PATH_BYTES 1200

static const char *const causes[] = {"late",   "surplus", "conditions", "failure",
                                     "memory", "refused", "error",      NULL};

static const char *const columns[] = {"model",
                                      "dataset",
                                      "is_synthetic",
                                      "condition",
                                      "hardware",
                                      "state",
                                      "data",
                                      "algorithm",
                                      "clients",
                                      "cohort",
                                      "seed",
                                      "round",
                                      "accuracy",
                                      "loss",
                                      "participants",
                                      "sim_hours",
                                      "late",
                                      "surplus",
                                      "conditions",
                                      "failure",
                                      "memory",
                                      "refused",
                                      "error",
                                      "assigned",
                                      "worst_tenth",
                                      "device_accuracy",
                                      "class_least",
                                      "class_most",
                                      "devices_counted",
                                      "partial",
                                      "test_examples",
                                      "end",
                                      "wire_down_bytes",
                                      "wire_up_bytes",
                                      NULL};

/* One run. */
typedef struct run_case {
    const hetero_condition *condition;
    const hetero_algorithm *algorithm;
    const hetero_extent *size;
    const char *dataset;
    uint64_t seed;
} run_case;

static double number_of(const json_t *object, const char *key)
{
    const json_t *cell = json_object_get(object, key);
    return json_is_number(cell) ? json_number_value(cell) : (double)NAN;
}

/* ---- the command line ---- */

typedef struct command {
    const char *argv[MOST_WORDS];
    char texts[MOST_WORDS][WORD_BYTES];
    int n, n_texts;
} command;

static void push(command *to, const char *flag, const char *value)
{
    to->argv[to->n++] = flag;
    to->argv[to->n++] = value;
}

static void push_int(command *to, const char *flag, int64_t value)
{
    char *text = to->texts[to->n_texts++];
    (void)snprintf(text, WORD_BYTES, "%" PRId64, value);
    push(to, flag, text);
}

static bool is_given(const hetero_algorithm *algorithm, const char *flag)
{
    for (int i = 0; algorithm->words[i] != NULL; i++) {
        if (strcmp(algorithm->words[i], flag) == 0) {
            return true;
        }
    }
    return false;
}

static void make_command(const study_flags *flags, const run_case *what, const char *devices,
                         const char *costs, command *to)
{
    const hetero_extent *size = what->size;
    to->argv[to->n++] = "dunlin-fleet";
    to->argv[to->n++] = "--serve";
    push(to, "--devices", devices);
    push(to, "--costs", costs);
    push(to, "--model", MODEL);
    push(to, "--dataset", what->dataset);
    push(to, "--partition", what->condition->data ? "dirichlet:0.3" : "iid");
    push(to, "--lr", "0.02");
    push(to, "--windows", "30000:60000"); /* so that a round fills up in less than a minute */
    push(to, "--retry-refused-ms", "10000:300000");
    push_int(to, "--clients", size->n_clients);
    push_int(to, "--cohort", size->cohort);
    push_int(to, "--rounds", size->rounds);
    push_int(to, "--max-examples", size->n_examples);
    push_int(to, "--epochs", size->epochs);
    push_int(to, "--batch", size->batch);
    push_int(to, "--seed", (int64_t)what->seed);
    push_int(to, "--threads", flags->n_threads > 2 ? flags->n_threads : 2);
    if (!is_given(what->algorithm, "--deadline")) {
        push_int(to, "--deadline", DEADLINE_S);
    }
    if (!is_given(what->algorithm, "--over-select")) {
        push(to, "--over-select", "1.3");
    }
    for (int i = 0; what->algorithm->words[i] != NULL; i++) {
        to->argv[to->n++] = what->algorithm->words[i];
    }
    if (flags->folder != NULL) {
        push(to, "--data", flags->folder);
    }
    if (loop_has_moments()) { /* the same events and models as over the wire, in less time */
        push(to, "--transport", "memory");
    }
}

/* ---- rows ---- */

static json_t *begin_row(const run_case *what, const json_t *setup)
{
    json_t *row = json_object();
    const char *dataset = json_string_value(json_object_get(setup, "dataset"));
    row_set_text(row, "model", MODEL);
    row_set_text(row, "dataset", dataset != NULL ? dataset : what->dataset);
    row_set_int(row, "is_synthetic", json_is_true(json_object_get(setup, "synthetic")) ? 1 : 0);
    row_set_text(row, "condition", what->condition->name);
    row_set_int(row, "hardware", what->condition->hardware ? 1 : 0);
    row_set_int(row, "state", what->condition->state ? 1 : 0);
    row_set_int(row, "data", what->condition->data ? 1 : 0);
    row_set_text(row, "algorithm", what->algorithm->name);
    row_set_int(row, "clients", what->size->n_clients);
    row_set_int(row, "cohort", what->size->cohort);
    row_set_int(row, "seed", (int64_t)what->seed);
    return row;
}

/* Of the whole run, in its last row: classes, the worst devices, who counted. */
static void set_end(json_t *row, const json_t *simulated)
{
    const json_t *classes = json_object_get(simulated, "classes");
    double least = (double)NAN;
    double most = (double)NAN;
    double n_assigned = 0.0;
    double n_partial = 0.0;
    for (size_t i = 0; i < json_array_size(classes); i++) {
        const json_t *one = json_array_get(classes, i);
        least = fmin(least, number_of(one, "accuracy"));
        most = fmax(most, number_of(one, "accuracy"));
        n_assigned += number_of(one, "assigned");
        n_partial += number_of(one, "partial");
    }
    row_set_int(row, "assigned", (int64_t)n_assigned);
    row_set_int(row, "partial", (int64_t)n_partial);
    row_set_real(row, "class_least", least);
    row_set_real(row, "class_most", most);
    row_set_real(row, "worst_tenth", number_of(simulated, "accuracy_worst_tenth"));
    row_set_real(row, "device_accuracy", number_of(simulated, "accuracy_mean"));
    row_set_int(row, "devices_counted", (int64_t)number_of(simulated, "devices_accepted"));
    row_set_text(row, "end", "finished");
}

static void add_rows(study *at, const run_case *what, const json_t *result)
{
    const json_t *rounds = json_object_get(result, "rounds");
    const size_t n = json_array_size(rounds);
    double dropped[sizeof causes / sizeof causes[0]] = {0.0};
    double down = 0.0;
    double up = 0.0;
    for (size_t i = 0; i < n; i++) {
        const json_t *round = json_array_get(rounds, i);
        const json_t *by = json_object_get(round, "dropped_by");
        json_t *row = begin_row(what, json_object_get(result, "setup"));
        row_set_int(row, "round", (int64_t)number_of(round, "round"));
        row_set_real(row, "accuracy", number_of(round, "accuracy"));
        row_set_real(row, "loss", number_of(round, "loss"));
        row_set_int(row, "participants", (int64_t)number_of(round, "participants"));
        row_set_real(row, "sim_hours", number_of(round, "sim_hours"));
        for (int c = 0; causes[c] != NULL; c++) {
            const double count = number_of(by, causes[c]);
            dropped[c] += isfinite(count) ? count : 0.0;
            row_set_int(row, causes[c], (int64_t)dropped[c]);
        }
        down += number_of(round, "bytes_down");
        up += number_of(round, "bytes_up");
        row_set_int(row, "wire_down_bytes", (int64_t)down);
        row_set_int(row, "wire_up_bytes", (int64_t)up);
        if (i + 1 == n) {
            set_end(row, json_object_get(result, "simulated"));
        }
        study_add_row(at, row);
    }
}

/* ---- a run ---- */

/* Steps of a device with the mean number of examples. */
static int64_t count_steps(const hetero_extent *size)
{
    const int64_t n = size->n_examples / size->n_clients;
    return size->epochs * ((n + size->batch - 1) / size->batch);
}

static bool run_fleet(study *at, const run_case *what, const char *devices, const char *costs)
{
    command line = {.n = 0};
    fleet_flags fleet;
    json_t *result = NULL;
    make_command(study_flags_of(at), what, devices, costs, &line);
    if (fleet_parse(line.n, (char **)(void *)line.argv, &fleet).is_done) {
        study_fail(at, "the fleet refuses its flags");
        return false;
    }
    fleet.is_quiet = true;
    if (fleet_run(&fleet, "", &result) != EXIT_OK) {
        study_fail(at,
                   study_is_interrupted() ? "interrupted; --resume goes on"
                                          : "a fleet of unequal devices failed: %s, %s",
                   what->condition->name, what->algorithm->name);
        return false;
    }
    add_rows(at, what, result);
    json_decref(result);
    return true;
}

static void do_run(study *at, const run_case *what)
{
    char devices[PATH_BYTES];
    char costs[PATH_BYTES + 8];
    char error[HETERO_ERROR_BYTES] = "";
    const char *folder = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): nobody writes it */
    const hetero_extent *size = what->size;
    const study_subject *subject = study_open_subject(at, MODEL, 28, 1, 10);
    (void)snprintf(devices, sizeof devices, "%s/dunlin-devices-XXXXXX",
                   folder != NULL ? folder : "/tmp");
    const int file = subject != NULL ? mkstemp(devices) : -1;
    if (file < 0) {
        study_fail(at, "%s cannot be made", devices);
        return;
    }
    (void)close(file);
    (void)snprintf(costs, sizeof costs, "%s.costs", devices);
    const double model_bytes = 4.0 * (double)dunlin_model_n_trainable_elements(subject->model);
    if (!hetero_write_devices(devices, what->condition, size->n_clients, what->seed, model_bytes,
                              error) ||
        !hetero_write_costs(costs, devices, at, subject, count_steps(size), size->batch, error)) {
        study_fail(at, "%s", error);
    } else {
        (void)run_fleet(at, what, devices, costs);
    }
    (void)unlink(devices);
    (void)unlink(costs);
}

static void offer(study *at, const run_case *what)
{
    const study_flags *flags = study_flags_of(at);
    const hetero_extent *size = what->size;
    char note[256];
    json_t *inputs =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:b, s:f, s:I, s:I, s:I, s:I, s:I}", "model", MODEL,
                  "dataset", what->dataset, "condition", what->condition->name, "algorithm",
                  what->algorithm->name, "run", (json_int_t)what->seed, "quick", flags->is_quick,
                  "target", flags->target, "clients", (json_int_t)size->n_clients, "cohort",
                  (json_int_t)size->cohort, "rounds", (json_int_t)size->rounds, "examples",
                  (json_int_t)size->n_examples, "epochs", (json_int_t)size->epochs);
    (void)snprintf(note, sizeof note, "heterogeneity %s: %s, %s, seed %" PRIu64, MODEL,
                   what->condition->name, what->algorithm->name, what->seed);
    if (study_begin_job(at, inputs, flags->is_quick ? 60 : 600, note)) {
        do_run(at, what);
        study_end_job(at);
    }
}

/* What a run tells, in the order in which runs are made, so that a study that has to end early has
 * the most telling ones with all seeds: all conditions by FedAvg; the other ways with unequal data,
 * on unequal devices and on equal ones, of which the directions are made; the rest. */
#define N_PARTS 3
static int part_of(int condition, int algorithm)
{
    if (algorithm == 0) {
        return 0;
    }
    const hetero_condition *of = &hetero_conditions[condition];
    return of->data && of->hardware == of->state ? 1 : 2;
}

/* With --quick all conditions by FedAvg, and the other ways on unequal devices with unequal data
 * alone. */
static bool is_wanted(const study_flags *flags, int condition, int algorithm)
{
    return !flags->is_quick || algorithm == 0 || condition == HETERO_CONDITIONS - 1;
}

/* All ways and conditions of a part and a seed. */
static void offer_part(study *at, int part, uint64_t seed)
{
    const study_flags *flags = study_flags_of(at);
    const hetero_extent size = hetero_size(flags);
    for (int a = 0; a < HETERO_ALGORITHMS; a++) {
        for (int c = 0; c < HETERO_CONDITIONS; c++) {
            const run_case what = {.condition = &hetero_conditions[c],
                                   .algorithm = &hetero_algorithms[a],
                                   .size = &size,
                                   .dataset = flags->folder == NULL ? "synthetic" : "mnist_writers",
                                   .seed = seed};
            if (part_of(c, a) == part && is_wanted(flags, c, a)) {
                offer(at, &what);
            }
        }
    }
}

static bool has_model(const study_flags *flags)
{
    bool is_there = flags->n_models == 0;
    for (int32_t i = 0; i < flags->n_models; i++) {
        is_there = is_there || strcmp(flags->model_list[i], MODEL) == 0;
    }
    return is_there;
}

static int run(study *at)
{
    const study_flags *flags = study_flags_of(at);
    if (flags->dataset != NULL || !has_model(flags)) {
        study_tell_filter(at, "heterogeneity trains %s on images of digits, written or made up",
                          MODEL);
        return EXIT_OK;
    }
    const hetero_extent size = hetero_size(flags);
    if (size.cohort > size.n_clients) {
        return program_misuse(&study_program,
                              "--cohort %" PRId64 " is more than %" PRId64 " devices", size.cohort,
                              size.n_clients);
    }
    if (size.n_examples < size.n_clients) {
        return program_misuse(&study_program,
                              "--max-examples %" PRId64 " is less than one for each of %" PRId64
                              " devices",
                              size.n_examples, size.n_clients);
    }
    for (int part = 0; part < N_PARTS; part++) {
        for (int64_t s = 0; s < flags->n_seeds; s++) {
            offer_part(at, part, flags->seed + (uint64_t)s);
        }
    }
    return study_has_failed(at) ? EXIT_FAILED : EXIT_OK;
}

/* ---- the tables beside the rows ---- */

static const char *const of_subject[] = {"model", "dataset", "data", NULL};
static const char *const of_setting[] = {"condition", "algorithm", NULL};
static const char *const of_totals[] = {
    "sim_hours",     "late",        "conditions", "failure",
    "surplus",       "worst_tenth", "assigned",   "devices_counted",
    "wire_up_bytes", "memory",      NULL};
static const char *const of_runs[] = {"model",
                                      "dataset",
                                      "is_synthetic",
                                      "condition",
                                      "algorithm",
                                      "seed",
                                      "round",
                                      "accuracy",
                                      "late_accuracy",
                                      "worst_tenth",
                                      "class_least",
                                      "class_most",
                                      "target",
                                      "round_to_target",
                                      "sim_hours",
                                      "sim_hours_to_target",
                                      "assigned",
                                      "late",
                                      "conditions",
                                      "failure",
                                      "surplus",
                                      "memory",
                                      "devices_counted",
                                      "partial",
                                      NULL};
static const char *const of_summary[] = {"model",
                                         "dataset",
                                         "is_synthetic",
                                         "condition",
                                         "algorithm",
                                         "runs",
                                         "mean_accuracy",
                                         "sd_accuracy",
                                         "mean_worst_tenth",
                                         "target",
                                         "reached",
                                         "mean_round_to_target",
                                         "mean_sim_hours",
                                         "mean_sim_hours_to_target",
                                         "mean_assigned",
                                         "mean_late",
                                         "mean_conditions",
                                         "mean_failure",
                                         "mean_surplus",
                                         "mean_devices_counted",
                                         "wire_up_bytes",
                                         "mean_late_accuracy",
                                         "mean_memory",
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
    grid_add_summary(at, &names);
    hetero_add_directions(at);
}

const study_kind study_heterogeneity = {
    .name = "heterogeneity",
    .title = "What unequal devices cost",
    .question = "What do unequal hardware, states and data cost in accuracy and time, each alone "
                "and together, and what do training methods make up for?",
    .method =
        "Fleets in simulated time with the real client, server and training (LeNet-5 on digits): "
        "200 devices of phones2019 by seed, 20 a round, 60 rounds, two epochs of batch 10 at rate "
        "0.02, momentum 0.9 (--quick: 40, 8 and 12; the flags in the command go before), in the "
        "hours "
        "after a midnight. Hardware: speed class, memory and rates, or "
        "those of a "
        "middle phone for all; state: charger, Wi-Fi, use, battery and crashes over the day, or "
        "always there; data: Dirichlet 0.3, or shared out evenly. A step's time is the roofline's, "
        "scaled so that a middle phone trains for a minute and downloads for ten seconds, as "
        "with a network that fills a phone; a round has 180 s, 1.3 times the cohort begins. "
        "\"Part of the work\": trainings end at 0.75 of the deadline; \"buffered\": rounds "
        "overlap, twice the cohort works, each has 900 s; \"compressed\": updates of four bits. "
        "Worst tenth: of the devices, by the last model's accuracy on their examples.",
    .columns = columns,
    .run_fn = run,
    .is_parallel = true,
    .finish_fn = finish,
};
