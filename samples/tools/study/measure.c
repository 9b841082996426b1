/*
 * measure.c - what training and inference take at a batch, beside PyTorch in the same run (the
 * EMDL measurement study).
 *
 * Invariant: ours and PyTorch's are measured one after the other, in a part of the study, with the
 * same network, batch and threads; the columns "torch_..." are of that other program.
 */
#include "named.h"
#include "study.h"
#include "torch.h"

#include <dunlin/predictor.h>
#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_EXAMPLES 64
#define FORWARDS_A_STEP 4
#define STRANGE "PyTorch's network has other parameters than ours"

static const char *const columns[] = {"model",
                                      "image",
                                      "budget_bytes",
                                      "batch",
                                      "policy",
                                      "fits",
                                      "needed_bytes",
                                      "planned_bytes",
                                      "forward_bytes",
                                      "parameters",
                                      "predicted_ms",
                                      "predicted_forward_ms",
                                      "predicted_ratio",
                                      "time_step_ms",
                                      STUDY_TIMES,
                                      "time_forward_ms",
                                      "time_forward_low_ms",
                                      "time_forward_high_ms",
                                      "time_forwards",
                                      "time_ratio",
                                      "torch_step_ms",
                                      "torch_step_low_ms",
                                      "torch_step_high_ms",
                                      "torch_steps",
                                      "torch_forward_ms",
                                      "torch_forward_low_ms",
                                      "torch_forward_high_ms",
                                      "torch_forwards",
                                      "torch_ratio",
                                      "torch_bytes",
                                      "torch_forward_bytes",
                                      "torch_fits",
                                      "torch_version",
                                      "torch_layout",
                                      "torch_note",
                                      NULL};

/* Inference of a whole batch. */
typedef struct measure_forward {
    bool is_fitting;
    dunlin_predictor_report report;
    double ms, low_ms, high_ms; /* of the processor */
    int64_t n_timed;
} measure_forward;

static int by_size(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double busy_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Some forward passes of the first examples, after one that is not counted. */
static dunlin_status time_forwards(dunlin_predictor *predictor, const dunlin_source *source,
                                   int64_t batch, int64_t n_outputs, int64_t n,
                                   measure_forward *out, dunlin_error *error)
{
    float *outputs = calloc((size_t)(batch * n_outputs), sizeof *outputs);
    double *times = calloc((size_t)n, sizeof *times);
    dunlin_status status = outputs != NULL && times != NULL ? DUNLIN_OK : DUNLIN_MEMORY;
    for (int64_t i = 0; i <= n && status == DUNLIN_OK; i++) {
        const double begin_ms = busy_ms();
        status = dunlin_predictor_predict(predictor, source, 0, batch, outputs, error);
        if (i > 0) {
            times[i - 1] = busy_ms() - begin_ms;
        }
    }
    if (status == DUNLIN_OK) {
        qsort(times, (size_t)n, sizeof times[0], by_size);
        out->ms = (times[(n - 1) / 2] + times[n / 2]) / 2.0;
        out->low_ms = times[0];
        out->high_ms = times[n - 1];
        out->n_timed = n;
    }
    free(times);
    free(outputs);
    return status;
}

static bool take_forwards(study *at, const study_subject *subject, uint64_t bytes, int64_t batch,
                          const dunlin_dataset *data, measure_forward *out)
{
    const study_flags *flags = study_flags_of(at);
    dunlin_predictor_options options = DUNLIN_PREDICTOR_OPTIONS_INIT;
    dunlin_predictor *predictor = NULL;
    dunlin_error error = {0};
    dunlin_source source;
    *out = (measure_forward){.report = DUNLIN_PREDICTOR_REPORT_INIT};
    options.budget_bytes = bytes;
    options.batch = batch;
    options.n_threads = (int32_t)flags->n_threads;
    dunlin_status status = dunlin_predictor_create(subject->model, &options, &predictor, &error);
    if (status == DUNLIN_BUDGET) {
        return true;
    }
    if (status == DUNLIN_OK) {
        dunlin_dataset_source(data, &source);
        status = dunlin_predictor_get_report(predictor, &out->report);
    }
    if (status == DUNLIN_OK) {
        status = time_forwards(predictor, &source, batch, dunlin_model_n_outputs(subject->model),
                               FORWARDS_A_STEP * flags->steps, out, &error);
    }
    dunlin_predictor_destroy(predictor);
    out->is_fitting = status == DUNLIN_OK;
    if (status != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
    }
    return status == DUNLIN_OK;
}

static void set_forward(json_t *row, const measure_forward *forward, const study_steps *steps)
{
    if (!forward->is_fitting) {
        return;
    }
    const double predicted_ms = forward->report.predicted_ms;
    row_set_int(row, "forward_bytes", (int64_t)forward->report.planned_bytes);
    row_set_real(row, "predicted_forward_ms", predicted_ms);
    row_set_real(row, "time_forward_ms", forward->ms);
    row_set_real(row, "time_forward_low_ms", forward->low_ms);
    row_set_real(row, "time_forward_high_ms", forward->high_ms);
    row_set_int(row, "time_forwards", forward->n_timed);
    if (steps->is_fitting) {
        row_set_real(row, "predicted_ratio", steps->report.predicted_ms / predicted_ms);
        row_set_real(row, "time_ratio", steps->processor_ms / forward->ms);
    }
}

static void set_torch(json_t *row, const torch_host *host, const torch_figures *torch,
                      uint64_t budget_bytes)
{
    if (!torch->is_there) {
        row_set_text(row, "torch_note", torch->note);
        return;
    }
    row_set_real(row, "torch_step_ms", torch->step.ms);
    row_set_real(row, "torch_step_low_ms", torch->step.low_ms);
    row_set_real(row, "torch_step_high_ms", torch->step.high_ms);
    row_set_int(row, "torch_steps", torch->step.n);
    row_set_real(row, "torch_forward_ms", torch->forward.ms);
    row_set_real(row, "torch_forward_low_ms", torch->forward.low_ms);
    row_set_real(row, "torch_forward_high_ms", torch->forward.high_ms);
    row_set_int(row, "torch_forwards", torch->forward.n);
    row_set_real(row, "torch_ratio", torch->step.ms / torch->forward.ms);
    row_set_int(row, "torch_bytes", (int64_t)torch->step_bytes);
    row_set_int(row, "torch_forward_bytes", (int64_t)torch->forward_bytes);
    row_set_int(row, "torch_fits", torch->step_bytes <= budget_bytes ? 1 : 0);
    row_set_text(row, "torch_version", host->version);
    row_set_text(row, "torch_layout", torch->layout);
}

/* One network and batch: all budgets and policies, and PyTorch, which knows neither. */
typedef struct measure_case {
    const char *model;
    int32_t image;
    int64_t batch;
    const study_budget *budgets;
    int32_t n_budgets;
    const dunlin_policy *policies;
    int32_t n_policies;
    const torch_host *host;
} measure_case;

/* What one row was measured under. */
typedef struct measure_setting {
    uint64_t bytes;
    dunlin_policy policy;
} measure_setting;

static void add_row(study *at, const study_subject *subject, const measure_case *what,
                    measure_setting setting, const study_steps *steps,
                    const measure_forward *forward, const torch_figures *torch)
{
    json_t *row = json_object();
    row_set_text(row, "model", study_model_name(subject->name));
    row_set_int(row, "image", study_image_side(subject));
    row_set_int(row, "budget_bytes", (int64_t)setting.bytes);
    row_set_int(row, "batch", what->batch);
    row_set_text(row, "policy", policy_name(setting.policy));
    row_set_int(row, "fits", steps->is_fitting ? 1 : 0);
    row_set_int(
        row, "needed_bytes",
        (int64_t)(steps->is_fitting ? steps->report.least_budget_bytes : steps->needed_bytes));
    row_set_int(row, "parameters", dunlin_model_n_trainable_elements(subject->model));
    if (steps->is_fitting) {
        row_set_int(row, "planned_bytes", (int64_t)steps->report.planned_bytes);
        row_set_real(row, "predicted_ms", steps->report.predicted_ms);
        study_set_times(row, steps);
    }
    set_forward(row, forward, steps);
    set_torch(row, what->host, torch, setting.bytes);
    study_add_row(at, row);
}

static torch_figures ask_torch(const study *at, const study_subject *subject,
                               const measure_case *what)
{
    const study_flags *flags = study_flags_of(at);
    const dunlin_shape shape = dunlin_model_input_shape(subject->model);
    const torch_case asked = {
        .model = what->model,
        .image = what->image,
        .channels = shape.n_dims == 3 ? (int32_t)shape.dims[0] : 0,
        .classes = dunlin_model_n_outputs(subject->model),
        .batch = what->batch,
        .n_threads = flags->n_threads,
        .n_steps = flags->steps,
    };
    torch_figures torch;
    torch_measure(what->host, &asked, &torch);
    if (torch.is_there && torch.n_parameters != dunlin_model_n_trainable_elements(subject->model)) {
        torch = (torch_figures){.note = STRANGE};
    }
    return torch;
}

static void do_job(study *at, const measure_case *what)
{
    const int64_t n_examples = what->batch > N_EXAMPLES ? what->batch : N_EXAMPLES;
    const study_subject *subject = study_open_subject(at, what->model, what->image, 0, 0);
    dunlin_dataset *data =
        subject == NULL ? NULL : study_open_data(at, subject, NULL, DUNLIN_SPLIT_TRAIN, n_examples);
    if (data == NULL) {
        return;
    }
    const torch_figures torch = ask_torch(at, subject, what);
    for (int32_t b = 0; b < what->n_budgets; b++) {
        const uint64_t bytes = study_bytes(&what->budgets[b], subject);
        measure_forward forward;
        bool is_good = take_forwards(at, subject, bytes, what->batch, data, &forward);
        for (int32_t p = 0; p < what->n_policies && is_good; p++) {
            const dunlin_trainer_options options =
                study_options(at, subject, what->policies[p], bytes, what->batch);
            study_steps steps;
            is_good =
                study_take_steps(at, subject, &options, data, study_flags_of(at)->steps, &steps);
            if (is_good) {
                const measure_setting setting = {bytes, what->policies[p]};
                add_row(at, subject, what, setting, &steps, &forward, &torch);
            }
        }
    }
    if (study_is_interrupted()) { /* PyTorch was stopped with the study: the part is not kept */
        study_fail(at, "interrupted; --resume goes on");
    }
    dunlin_dataset_close(data);
}

static void offer_job(study *at, const measure_case *what)
{
    char note[96];
    json_t *budgets = json_array();
    json_t *policies = json_array();
    for (int32_t b = 0; b < what->n_budgets; b++) {
        (void)json_array_append_new(budgets, json_string(what->budgets[b].text));
    }
    for (int32_t p = 0; p < what->n_policies; p++) {
        (void)json_array_append_new(policies, json_string(policy_name(what->policies[p])));
    }
    json_t *inputs =
        json_pack("{s:s, s:i, s:I, s:o, s:o, s:s}", "model", what->model, "image", (int)what->image,
                  "batch", (json_int_t)what->batch, "budgets", budgets, "policies", policies,
                  "torch", what->host->version[0] != '\0' ? what->host->version : what->host->note);
    (void)snprintf(note, sizeof note, "measure %s, batch %" PRId64, study_model_name(what->model),
                   what->batch);
    if (study_begin_job(at, inputs, study_weight(what->model) * what->batch / 16 + 4, note)) {
        do_job(at, what);
        study_end_job(at);
    }
}

static int run(study *at)
{
    const bool is_quick = study_flags_of(at)->is_quick;
    const char *models[STUDY_MAX_LIST];
    study_budget budgets[STUDY_MAX_LIST];
    dunlin_policy policies[STUDY_MAX_LIST];
    int64_t batches[STUDY_MAX_LIST];
    const int32_t n_models =
        study_models(at, "lenet5,squeezenet1_1,mobilenet_v2,googlenet,alexnet", models);
    const int32_t n_budgets = study_budgets(at, is_quick ? "150%" : "1GiB", budgets);
    const int32_t n_policies = study_policies(at, "none,auto", policies);
    const int32_t n_batches =
        study_batches(at, is_quick ? "1,2,4,16" : "1,2,4,8,16,32,64", batches);
    const torch_host host =
        study_is_counting(at) ? (torch_host){.python = NULL} : torch_find(study_flags_of(at));
    for (int32_t i = 0; i < n_models * n_batches; i++) {
        const char *model = models[i / n_batches];
        const measure_case what = {.model = model,
                                   .image = study_image(at, model, 64, 224),
                                   .batch = batches[i % n_batches],
                                   .budgets = budgets,
                                   .n_budgets = n_budgets,
                                   .policies = policies,
                                   .n_policies = n_policies,
                                   .host = &host};
        offer_job(at, &what);
    }
    return EXIT_OK;
}

const study_kind study_measure = {
    .name = "measure",
    .title = "Training and inference, by batch",
    .question = "What do a training step and an inference take, in time and in memory, and how "
                "does that grow with the batch?",
    .method =
        "Processor time of a step and of a forward pass, the median of some with their range, and "
        "the bytes of each plan in a budget: \"none\" shares no memory, as a plain trainer does. "
        "PyTorch runs the same network at the same batch with as many threads, in a process of "
        "its own, in the same part of this run: SGD with momentum, float32, the faster layout, "
        "OpenBLAS or MKL with the widest kernels, memory as the process's high-water mark above "
        "what is resident with PyTorch loaded. Its columns begin with \"torch_\".",
    .columns = columns,
    .run_fn = run,
};
