/*
 * precision.c - the numbers to train in, beside float32: what a step takes, and accuracy, rounds
 * and cost to the same accuracy, on one machine and in fleets (the tables of Mandheling, Xu et al.,
 * MobiCom 2022).
 *
 * Invariant: the runs of a network and a data set differ in the precision and the seed alone, and
 * in what stands for a rate.
 */
#include "precision.h"

#include "central.h"
#include "fleets.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const columns[] = {"setting",
                                      "model",
                                      "dataset",
                                      "is_synthetic",
                                      "partition",
                                      "precision",
                                      "batch",
                                      "lr",
                                      "grad_bits",
                                      "seed",
                                      "round",
                                      "accuracy",
                                      "loss",
                                      "train_loss",
                                      "examples",
                                      "steps",
                                      "clients",
                                      "cohort",
                                      "participants",
                                      "peak_bytes",
                                      "operand_bytes",
                                      "train_examples",
                                      "test_examples",
                                      "end",
                                      "wire_down_bytes",
                                      "wire_up_bytes",
                                      "time_cpu_s",
                                      "energy_j",
                                      NULL};

/* How much is trained: on one machine `rounds` are epochs. No examples: it is left out. */
typedef struct extent {
    int64_t n_examples, n_test, rounds, epochs, n_clients, cohort;
} extent;

/* A network on a data set, on one machine or, with a partition, in a fleet. */
typedef struct task {
    const char *model, *dataset, *partition;
    int32_t image, channels;
    int64_t batch;
    extent whole, quick;
} task;

/* The paper's pairs of networks and settings, as far as an afternoon of one core goes, and what has
 * batch norm beside them. */
static const task tasks[] = {
    {"lenet5",
     "fashion_mnist",
     NULL,
     28,
     1,
     64,
     {20000, 10000, 4, 0, 0, 0},
     {3000, 1000, 3, 0, 0, 0}},
    {"cnn_bn", "cifar10", NULL, 32, 3, 64, {0, 0, 0, 0, 0, 0}, {1000, 300, 3, 0, 0, 0}},
    {"vgg11_cifar", "cifar10", NULL, 32, 3, 64, {5000, 1000, 6, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
    {"resnet18", "cifar10", NULL, 32, 3, 64, {5000, 1000, 4, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
    {"mobilenet_v2", "cifar10", NULL, 32, 3, 64, {5000, 1000, 4, 0, 0, 0}, {0, 0, 0, 0, 0, 0}},
    {"lenet5",
     "mnist_writers",
     "writers",
     28,
     1,
     16,
     {12000, 0, 20, 1, 60, 20},
     {1200, 0, 5, 2, 12, 6}},
    {"vgg16_cifar", "cifar10", "iid", 32, 3, 32, {2500, 0, 10, 1, 10, 5}, {0, 0, 0, 0, 0, 0}},
};
#define N_TASKS (sizeof tasks / sizeof tasks[0])
#define MOST_TASKS (N_TASKS + 2 * STUDY_MAX_LIST)

/* Networks whose steps are measured. */
#define STEPS_OF "lenet5,vgg11_cifar,resnet18,mobilenet_v2"

static int64_t or_else(int64_t given, int64_t own)
{
    return given > 0 ? given : own;
}

static const char *dataset_of(const study_flags *flags, const task *what)
{
    if (flags->dataset != NULL) {
        return flags->choice.name;
    }
    return flags->folder == NULL ? "synthetic" : what->dataset;
}

/* In the sizes of the study's task, or of the data set that it is trained on. */
static const study_subject *open_subject(study *at, const task *what)
{
    const study_flags *flags = study_flags_of(at);
    const bool is_own = flags->dataset != NULL;
    const int32_t asked = study_image(at, what->model, what->image, what->image);
    const int32_t image = asked == 0 || what->partition != NULL ? what->image : asked;
    if (what->channels == 0 && !is_own) {
        dunlin_zoo_options options = {.image = image};
        const data_choice choice = {.name = dataset_of(flags, what)};
        data_fill_zoo(&choice, what->model, &options);
        return study_open_subject(at, what->model, options.image, options.channels,
                                  options.classes == 0 ? 10 : options.classes);
    }
    return study_open_subject(at, what->model, image, is_own ? 0 : what->channels, is_own ? 0 : 10);
}

static double rate_of(const study_flags *flags, const precision_way *way, double rule)
{
    return flags->n_rates == 1 ? flags->rate_list[0] : way->rate * rule;
}

static grid_variant variant_of(const study *at, const task *what, const precision_way *way)
{
    int64_t batches[STUDY_MAX_LIST];
    grid_variant variant = {.policy = DUNLIN_POLICY_AUTO, .price = (double)NAN};
    variant.batch =
        study_batches(at, "0", batches) > 0 && batches[0] > 0 ? batches[0] : what->batch;
    (void)snprintf(variant.label, sizeof variant.label, "%s", way->name);
    (void)snprintf(variant.rule.text, sizeof variant.rule.text, "%" PRId64, variant.batch);
    return variant;
}

/* What all runs of the study are known by. */
static json_t *inputs_of(const study *at, const task *what, const precision_way *way, double rate,
                         uint64_t seed)
{
    const study_flags *flags = study_flags_of(at);
    json_t *inputs =
        json_pack("{s:s, s:s, s:s, s:s, s:f, s:I, s:b, s:s, s:f, s:f, s:s, s:s}", "model",
                  what->model, "dataset", dataset_of(flags, what), "partition",
                  what->partition == NULL ? "" : what->partition, "precision", way->name, "lr",
                  rate, "run", (json_int_t)seed, "quick", flags->is_quick, "schedule",
                  flags->schedule == NULL ? "" : flags->schedule, "warmup",
                  flags->has_warmup ? flags->warmup_percent : -1.0, "decay", flags->weight_decay,
                  "augment", flags->augment == NULL ? "" : flags->augment, "batches",
                  flags->batches == NULL ? "" : flags->batches);
    return inputs;
}

/* --- on one machine --- */

static void offer_central(study *at, const study_subject *subject, const task *what,
                          const precision_way *way, uint64_t seed)
{
    const study_flags *flags = study_flags_of(at);
    const extent *size = flags->is_quick ? &what->quick : &what->whole;
    const grid_variant variant = variant_of(at, what, way);
    const central_run run = {
        .variant = &variant,
        .model = what->model,
        .dataset = dataset_of(flags, what),
        .seed = seed,
        .rate = {.lr = rate_of(flags, way, central_rule(variant.batch)), .rule = "rule"},
        .epochs = or_else(flags->epochs, size->rounds),
        .max_examples = or_else(flags->max_examples, size->n_examples),
        .max_test = size->n_test,
        .looks = 1,
        .precision = way->name,
        .grad_bits = way->grad_bits};
    json_t *inputs = inputs_of(at, what, way, run.rate.lr, seed);
    json_t *more = json_pack("{s:I, s:I, s:I}", "epochs", (json_int_t)run.epochs, "most",
                             (json_int_t)run.max_examples, "most_test", (json_int_t)run.max_test);
    (void)json_object_update(inputs, more);
    json_decref(more);
    char note[160];
    (void)snprintf(note, sizeof note, "precision %s, %s, seed %" PRIu64,
                   study_model_name(what->model), way->name, seed);
    const int64_t weight = study_weight(what->model);
    if (study_begin_job(at, inputs, 100 * (weight > 4 ? 4 : weight), note)) {
        central_train(at, subject, &run);
        study_end_job(at);
    }
}

/* --- in a fleet --- */

static fleet_extent extent_of(const study_flags *flags, const task *what)
{
    const extent *own = flags->is_quick ? &what->quick : &what->whole;
    fleet_extent size = {.n_clients = or_else(flags->n_clients, own->n_clients),
                         .rounds = or_else(flags->rounds, own->rounds),
                         .epochs = or_else(flags->epochs, own->epochs),
                         .n_examples = or_else(flags->max_examples, own->n_examples)};
    if (flags->dataset != NULL && flags->own.n_examples < size.n_examples) {
        size.n_examples = flags->own.n_examples;
    }
    size.cohort = or_else(flags->cohort, own->cohort);
    size.cohort = size.cohort > size.n_clients ? size.n_clients : size.cohort;
    return size;
}

/* Examples that the models of rounds are judged on; 0: not known. */
static int64_t count_tested(study *at, const study_subject *subject, const task *what)
{
    dunlin_dataset *test = study_open_split(at, subject, dataset_of(study_flags_of(at), what),
                                            DUNLIN_SPLIT_TEST, 0, NULL);
    const int64_t n = test == NULL ? 0 : dunlin_dataset_n_examples(test);
    dunlin_dataset_close(test);
    return n;
}

static void offer_fleet(study *at, const study_subject *subject, const task *what,
                        const precision_way *way, uint64_t seed)
{
    const study_flags *flags = study_flags_of(at);
    const grid_variant variant = variant_of(at, what, way);
    fleet_case one = {.model = what->model,
                      .dataset = dataset_of(flags, what),
                      .partition =
                          flags->n_partitions > 0 ? flags->partition_list[0] : what->partition,
                      .algorithm = "fedavg",
                      .variant = &variant,
                      .size = extent_of(flags, what),
                      .seed = seed,
                      .drops_last = study_has_batch_norm(subject),
                      .precision = way->name,
                      .grad_bits = way->fleet_bits};
    one.rate = (grid_rate){.lr = rate_of(flags, way, fleets_rule(variant.batch)), .rule = "rule"};
    json_t *inputs = inputs_of(at, what, way, one.rate.lr, seed);
    json_t *more =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "clients", (json_int_t)one.size.n_clients,
                  "cohort", (json_int_t)one.size.cohort, "rounds", (json_int_t)one.size.rounds,
                  "epochs", (json_int_t)one.size.epochs, "most", (json_int_t)one.size.n_examples,
                  "split", one.partition);
    (void)json_object_update(inputs, more);
    json_decref(more);
    char note[160];
    (void)snprintf(note, sizeof note, "precision %s in a fleet, %s, seed %" PRIu64,
                   study_model_name(what->model), way->name, seed);
    if (study_begin_job(at, inputs, flags->is_quick ? 100 : 500, note)) {
        one.n_test = count_tested(at, subject, what);
        if (one.n_test > 0) {
            fleets_run(at, &one);
        }
        study_end_job(at);
    }
}

/* --- the lists --- */

static bool is_named(const study_flags *flags, const char *model)
{
    bool is_there = flags->n_models == 0;
    for (int32_t i = 0; i < flags->n_models; i++) {
        is_there = is_there || strcmp(flags->model_list[i], model) == 0;
    }
    return is_there && study_data_fits(flags, model);
}

/* A precision that the network cannot be trained in is told by the table of steps. */
static void offer_task(study *at, const task *what, uint64_t seed)
{
    const study_flags *flags = study_flags_of(at);
    const study_subject *subject = open_subject(at, what);
    dunlin_error why;
    for (size_t i = 0; subject != NULL && precision_ways[i].name != NULL; i++) {
        const precision_way *way = &precision_ways[i];
        if (!precision_is_wanted(flags, way->name) ||
            precision_is_refused(subject, way->name, &why)) {
            continue;
        }
        if (what->partition == NULL) {
            offer_central(at, subject, what, way, seed);
        } else {
            offer_fleet(at, subject, what, way, seed);
        }
    }
}

/* Else it reads features or tokens, or is a file with a size of its own. */
static bool has_pixels(const study_flags *flags, const char *model)
{
    return flags->dataset != NULL ||
           (!study_is_file(model) && strcmp(model, "har_mlp") != 0 &&
            strcmp(model, "har_fcn") != 0 && strncmp(model, "bert", 4) != 0 &&
            strncmp(model, "gpt", 3) != 0);
}

/* A task of a network that the study has none of, on a machine or in a fleet. */
static task other_task(const study_flags *flags, const char *model, bool is_fleet)
{
    const char *dataset = study_default_dataset(flags, model);
    task made = {.model = model,
                 .dataset = dataset == NULL ? "synthetic" : dataset,
                 .partition = is_fleet ? "iid" : NULL,
                 .batch = 32,
                 .whole = {5000, 1000, 4, 1, 4, 4},
                 .quick = {1000, 300, 3, 1, 4, 4}};
    if (has_pixels(flags, model)) {
        made.image = 32;
        made.channels = 3;
    }
    return made;
}

/* Of the study's own tasks those of the networks that are asked for; a network without one, or a
 * data set that none of them takes, has one on a machine and, with images, one in a fleet. */
static int32_t list_tasks(const study *at, task out[MOST_TASKS])
{
    const study_flags *flags = study_flags_of(at);
    const char *models[STUDY_MAX_LIST];
    int32_t n = 0;
    for (size_t t = 0; t < N_TASKS; t++) {
        const extent *size = flags->is_quick ? &tasks[t].quick : &tasks[t].whole;
        if (size->n_examples > 0 && is_named(flags, tasks[t].model)) {
            out[n++] = tasks[t];
        }
    }
    const int32_t n_models = flags->n_models > 0 || n == 0 ? study_models(at, "lenet5", models) : 0;
    for (int32_t m = 0; m < 2 * n_models; m++) {
        const char *model = models[m / 2];
        const bool is_fleet = m % 2 == 1;
        bool is_there = is_fleet && !has_pixels(flags, model);
        for (int32_t t = 0; t < n; t++) {
            is_there = is_there ||
                       (strcmp(out[t].model, model) == 0 && (out[t].partition != NULL) == is_fleet);
        }
        if (!is_there) {
            out[n++] = other_task(flags, model, is_fleet);
        }
    }
    return n;
}

static void offer_steps(study *at, const task *listed, int32_t n)
{
    const study_flags *flags = study_flags_of(at);
    const bool is_own = flags->n_models > 0 || flags->dataset != NULL;
    const char *at_name = is_own ? NULL : STEPS_OF;
    for (char piece[STUDY_PIECE_BYTES]; study_next_piece(&at_name, piece);) {
        const char *models[STUDY_MAX_LIST];
        (void)study_models(at, piece, models);
        const int32_t image = strcmp(piece, "lenet5") == 0 ? 28 : 32;
        precision_offer_steps(at, models[0], flags->image != 0 ? (int32_t)flags->image : image,
                              image == 28 ? 1 : 3);
    }
    for (int32_t t = 0; is_own && t < n; t++) {
        bool is_first = true;
        for (int32_t k = 0; k < t; k++) {
            is_first = is_first && strcmp(listed[k].model, listed[t].model) != 0;
        }
        const int32_t image = study_image(at, listed[t].model, listed[t].image, listed[t].image);
        if (is_first) {
            precision_offer_steps(at, listed[t].model, image == 0 ? listed[t].image : image,
                                  flags->dataset != NULL ? 0 : listed[t].channels);
        }
    }
}

static int run(study *at)
{
    const study_flags *flags = study_flags_of(at);
    task listed[MOST_TASKS];
    const int32_t n = list_tasks(at, listed);
    offer_steps(at, listed, n);
    for (int64_t s = 0; s < flags->n_seeds; s++) {
        for (int32_t t = 0; t < n && !study_has_failed(at); t++) {
            offer_task(at, &listed[t], flags->seed + (uint64_t)s);
        }
    }
    return study_has_failed(at) ? EXIT_FAILED : EXIT_OK;
}

/* --- the tables beside the rows --- */

static const char *const of_subject[] = {"setting", "model", "dataset", NULL};
static const char *const of_setting[] = {"precision", NULL};
static const char *const of_totals[] = {
    "examples", "steps", "operand_bytes", "wire_up_bytes", "time_cpu_s", "energy_j", NULL};
static const char *const of_runs[] = {"setting",
                                      "model",
                                      "dataset",
                                      "is_synthetic",
                                      "precision",
                                      "batch",
                                      "lr",
                                      "grad_bits",
                                      "seed",
                                      "train_examples",
                                      "test_examples",
                                      "end",
                                      "round",
                                      "accuracy",
                                      "late_accuracy",
                                      "best_accuracy",
                                      "loss",
                                      "test_error",
                                      "target",
                                      "round_to_target",
                                      "peak_bytes",
                                      "operand_bytes",
                                      "operand_bytes_to_target",
                                      "wire_up_bytes",
                                      "wire_up_bytes_to_target",
                                      "time_cpu_s",
                                      "time_cpu_s_to_target",
                                      "energy_j",
                                      "energy_j_to_target",
                                      NULL};
static const char *const of_summary[] = {"setting",
                                         "model",
                                         "dataset",
                                         "is_synthetic",
                                         "precision",
                                         "batch",
                                         "lr",
                                         "grad_bits",
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
                                         "peak_bytes",
                                         "mean_operand_bytes",
                                         "mean_operand_bytes_to_target",
                                         "wire_up_bytes",
                                         "wire_up_bytes_to_target",
                                         "time_cpu_s",
                                         "time_cpu_s_to_target",
                                         "energy_j",
                                         "energy_j_to_target",
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
    precision_add_claims(at);
    precision_add_steps(at);
}

const study_kind study_precision = {
    .name = "precision",
    .title = "The numbers to train in",
    .question = "What do integers save of a step's time, memory and energy, and what do they cost "
                "in accuracy and rounds, on one machine and in fleets?",
    .method =
        "Every precision of the library beside float32, on the same network, data, batch and "
        "order of examples: SGD with momentum 0.9 at the rate of the other studies with a cosine, "
        "wageubn at 12.5 times that (its gradients have one size), niti and niti16 without a "
        "rate: their updates have 5, 4, 3, 2, 1, then 0 bits, in fleets 5, 4, then 3. An epoch on "
        "one machine counts as a round. A step's time is that of the processor, the median of "
        "some, all precisions of a network one after the "
        "other. A fleet's processor time and energy are those of server, evaluation and all "
        "devices, which share this machine, spread evenly over its rounds. Cost to an accuracy: "
        "to the highest that every precision reaches. Energy is there where the machine counts "
        "it. The paper's figures are Mandheling's (MobiCom 2022): NITI on a phone's DSP beside "
        "MNN in float32 and in int8.",
    .columns = columns,
    .run_fn = run,
    .is_parallel = true,
    .finish_fn = finish,
};
