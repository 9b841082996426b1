/*
 * subject.c - the networks of a study, opened once, and the data they take.
 *
 * Invariant: the measure of budgets (what the ideal step of batch 32 takes) is planned with the
 * roofline's costs, so it does not depend on --costs, and is the same everywhere.
 */
#include "study.h"

#include <dunlin/costs.h>
#include <dunlin/tools.h>
#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of networks that read tokens, with --quick; their own otherwise. */
#define QUICK_SEQUENCE 16
#define QUICK_VOCABULARY 2048

static study_subject subjects[STUDY_MAX_SUBJECTS];
static int32_t n_subjects;

static const struct {
    const char *name;
    int64_t weight;
    bool has_images;
} networks[] = {
    {"lenet5", 1, true},         {"mobilenet_v1", 40, true}, {"mobilenet_v2", 40, true},
    {"squeezenet1_1", 30, true}, {"resnet18", 80, true},     {"resnet50", 200, true},
    {"densenet121", 200, true},  {"vgg16", 300, true},       {"bert_small", 200, false},
    {"har_mlp", 1, false},       {"alexnet", 80, true},      {"googlenet", 80, true},
    {"vgg11_cifar", 80, true},   {"vgg16_cifar", 160, true},
};
#define N_NETWORKS (sizeof networks / sizeof networks[0])

int64_t study_weight(const char *model)
{
    for (size_t i = 0; i < N_NETWORKS; i++) {
        if (strcmp(networks[i].name, model) == 0) {
            return networks[i].weight;
        }
    }
    return 1;
}

int32_t study_image(const study *at, const char *model, int32_t quick, int32_t full)
{
    const study_flags *flags = study_flags_of(at);
    const int32_t own = flags->image != 0 ? (int32_t)flags->image : study_data_image(flags);
    if (strcmp(model, "lenet5") == 0) {
        return own != 0 ? own : 28;
    }
    full = flags->is_quick ? quick : full;
    for (size_t i = 0; i < N_NETWORKS; i++) {
        if (strcmp(networks[i].name, model) == 0 && networks[i].has_images) {
            return own != 0 ? own : full;
        }
        if (strcmp(networks[i].name, model) == 0) {
            return 0;
        }
    }
    return own;
}

/* The trainer's failures are reported by their status where they matter. */
dunlin_trainer_options study_options(const study *at, const study_subject *subject,
                                     dunlin_policy policy, uint64_t budget_bytes, int64_t batch)
{
    const study_flags *flags = study_flags_of(at);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.policy = policy;
    options.baselines = dunlin_baselines_published();
    options.budget_bytes = policy == DUNLIN_POLICY_IDEAL ? 0 : budget_bytes;
    options.batch = batch;
    options.seed = flags->seed;
    options.n_threads = (int32_t)flags->n_threads;
    options.momentum = 0.9F;
    options.lr = 0.01F;
    options.costs = subject->costs;
    options.max_ratio = (double)INFINITY; /* a study asks what fits, and tells the price */
    options.swap_dir = flags->swap_dir;
    options.swap_write_mb_per_s = flags->swap_write_mb_per_s;
    options.swap_read_mb_per_s = flags->swap_read_mb_per_s;
    return options;
}

/* What a step takes where no memory is shared, by the roofline's plan; 0: there is no plan. */
static uint64_t bytes_of_none(const study_subject *subject, int64_t batch)
{
    dunlin_error error = {0};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.policy = DUNLIN_POLICY_NONE;
    options.batch = batch;
    options.momentum = 0.9F;
    options.n_threads = subject->n_threads;
    return dunlin_trainer_estimate(subject->model, &options, &report, &error) == DUNLIN_OK
               ? report.planned_bytes
               : 0;
}

uint64_t study_bytes(const study_budget *budget, const study_subject *subject)
{
    if (budget->batch > 0) {
        return bytes_of_none(subject, budget->batch);
    }
    return budget->share > 0.0 ? (uint64_t)(budget->share * (double)subject->ideal_bytes)
                               : budget->bytes;
}

/* What batch 32 takes at most and at least. */
static bool measure(study *at, study_subject *subject)
{
    dunlin_error error = {0};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_options options =
        study_options(at, subject, DUNLIN_POLICY_IDEAL, 0, STUDY_BATCH);
    options.costs = NULL;
    if (dunlin_trainer_estimate(subject->model, &options, &report, &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    subject->ideal_bytes = report.planned_bytes;
    subject->ideal_ms = report.predicted_ms;
    options.policy = DUNLIN_POLICY_AUTO;
    if (dunlin_trainer_estimate(subject->model, &options, &report, &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    subject->least_bytes = report.least_budget_bytes;
    return true;
}

/* Height of the images that a network takes, if they are square; else 0. */
static int32_t taken_side(const dunlin_model *model)
{
    const dunlin_shape shape = dunlin_model_input_shape(model);
    const bool is_square = shape.n_dims == 3 && shape.dims[1] == shape.dims[2];
    return is_square && shape.dims[1] > 1 ? (int32_t)shape.dims[1] : 0;
}

/* Outputs, and for a network that is trained on a text the tokens that it reads. */
static void fill_classes(const study_flags *flags, const char *model, bool is_trained,
                         dunlin_zoo_options *options)
{
    const data_choice own = {.name = study_default_dataset(flags, model)};
    const bool reads_text = own.name != NULL && data_is_text(&own);
    if (flags->dataset == NULL && is_trained && reads_text) {
        options->classes = 0;
        data_fill_zoo(&own, model, options);
    }
    if (options->classes == 0 && flags->dataset != NULL && flags->own.has_shape &&
        !study_is_file(model)) {
        options->classes = flags->own.n_classes;
    }
    options->classes = flags->classes != 0 ? (int32_t)flags->classes : options->classes;
}

/* Of a network whose windows do not fit into the images of the study or the data set, the least
 * larger size that they fit into; the size of --image stands. */
static dunlin_status open_large_enough(const study_flags *flags, const char *model,
                                       const dunlin_zoo_options *options, dunlin_model **out_model,
                                       dunlin_error *error)
{
    static const int32_t sizes[] = {64, 96, 128, 224};
    dunlin_status status = dunlin_model_from_zoo(model, options, NULL, out_model, error);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && status != DUNLIN_OK; i++) {
        dunlin_zoo_options larger = *options;
        dunlin_error ignored = {0};
        larger.image = sizes[i];
        if (flags->image == 0 && options->image > 1 && sizes[i] > options->image) {
            status = dunlin_model_from_zoo(model, &larger, NULL, out_model, &ignored);
        }
    }
    return status;
}

int32_t study_image_side(const study_subject *subject)
{
    return subject->image > 1 && subject->side > 0 ? subject->side : subject->image;
}

const study_subject *study_open_subject(study *at, const char *model, int32_t image,
                                        int32_t channels, int32_t classes)
{
    const study_flags *flags = study_flags_of(at);
    for (int32_t i = 0; i < n_subjects; i++) {
        if (strcmp(subjects[i].name, model) == 0 && subjects[i].image == image &&
            subjects[i].channels == channels && subjects[i].classes == classes) {
            return &subjects[i];
        }
    }
    dunlin_error error = {0};
    if (n_subjects == STUDY_MAX_SUBJECTS) {
        study_fail(at, "more than %d networks", STUDY_MAX_SUBJECTS);
        return NULL;
    }
    study_subject *subject = &subjects[n_subjects];
    *subject = (study_subject){.name = model,
                               .image = image,
                               .channels = channels,
                               .classes = classes,
                               .n_threads = (int32_t)flags->n_threads};
    dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                  .image = image,
                                  .channels = channels,
                                  .classes = classes};
    if (image == 0 && flags->is_quick && strcmp(model, "bert_small") == 0) {
        options.sequence = QUICK_SEQUENCE;
        options.vocabulary = QUICK_VOCABULARY;
    }
    if (flags->dataset != NULL) {
        data_fill_zoo(&flags->choice, model, &options);
    }
    fill_classes(flags, model, classes > 0, &options);
    const dunlin_status status =
        study_is_file(model) ? study_open_file(flags, model, &options, &subject->model, &error)
                             : open_large_enough(flags, model, &options, &subject->model, &error);
    if (status != DUNLIN_OK) {
        study_fail_with(at, model, &error);
        return NULL;
    }
    n_subjects++;
    subject->side = taken_side(subject->model);
    if (!measure(at, subject)) {
        return NULL;
    }
    if (flags->costs != NULL &&
        dunlin_costs_load(flags->costs, NULL, &subject->costs, &error) != DUNLIN_OK) {
        study_fail_with(at, flags->costs, &error);
        return NULL;
    }
    return subject;
}

void study_close_subjects(study *at)
{
    (void)at;
    for (int32_t i = 0; i < n_subjects; i++) {
        dunlin_costs_free(subjects[i].costs);
        dunlin_model_destroy(subjects[i].model);
        subjects[i] = (study_subject){.name = NULL};
    }
    n_subjects = 0;
}
