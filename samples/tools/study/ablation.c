/*
 * ablation.c - the contribution of each technique: the planner with parts of it switched off.
 */
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <stdio.h>
#include <string.h>

#define N_EXAMPLES 64

static const char *const columns[] = {"model",
                                      "image",
                                      "budget_share",
                                      "budget_bytes",
                                      "variant",
                                      "fits",
                                      "needed_bytes",
                                      "planned_bytes",
                                      "predicted_ms",
                                      "ideal_ms",
                                      "redo_share",
                                      "n_slices",
                                      "n_regions",
                                      "swap_bytes",
                                      "max_batch",
                                      "is_any",
                                      "time_step_ms",
                                      STUDY_TIMES,
                                      NULL};

/* From the least to all; then all of it without fusion; then with a file instead. */
static const struct {
    const char *name;
    dunlin_policy policy;
    bool no_fuse;
} variants[] = {
    {"pool", DUNLIN_POLICY_POOL, false},
    {"recompute", DUNLIN_POLICY_RECOMPUTE, false},
    {"pool+recompute", DUNLIN_POLICY_WHOLE, false},
    {"+slices", DUNLIN_POLICY_AUTO, false},
    {"+regions", DUNLIN_POLICY_AUTO, false},
    {"fusion off", DUNLIN_POLICY_AUTO, true},
    {"swap", DUNLIN_POLICY_VDNN, false},
    {"swap+recompute", DUNLIN_POLICY_CAPUCHIN, false},
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

/* Batch norm couples the batch: slices of the whole step are then no choice, regions are. */
static bool is_coupled(const study_subject *subject, const dunlin_trainer_options *options)
{
    dunlin_trainer_options sliced = *options;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {0};
    sliced.policy = DUNLIN_POLICY_MICROBATCH;
    sliced.micro_batch = 1;
    sliced.budget_bytes = 0;
    return dunlin_trainer_estimate(subject->model, &sliced, &report, &error) == DUNLIN_UNSUPPORTED;
}

static bool find_max_batch(study *at, const study_subject *subject,
                           const dunlin_trainer_options *options, json_t *row)
{
    dunlin_error error = {0};
    int64_t batch = 0;
    if (dunlin_trainer_max_batches(subject->model, options, &options->budget_bytes, 1, &batch, NULL,
                                   &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    if (batch == INT64_MAX) {
        row_set_text(row, "max_batch", NULL);
    } else {
        row_set_int(row, "max_batch", batch);
    }
    row_set_int(row, "is_any", batch == INT64_MAX ? 1 : 0);
    return true;
}

static bool add_row(study *at, const study_subject *subject, const dunlin_dataset *data,
                    const study_budget *budget, size_t v)
{
    const uint64_t bytes = study_bytes(budget, subject);
    dunlin_trainer_options options =
        study_options(at, subject, variants[v].policy, bytes, STUDY_BATCH);
    study_steps steps;
    options.no_fuse = variants[v].no_fuse;
    /* The costs of --costs are of the fused step. */
    options.costs = options.no_fuse ? NULL : options.costs;
    if (strcmp(variants[v].name, "+slices") == 0 && is_coupled(subject, &options)) {
        options.policy = DUNLIN_POLICY_WHOLE;
    }
    if (!study_take_steps(at, subject, &options, data, study_flags_of(at)->steps, &steps)) {
        return false;
    }
    const dunlin_trainer_report *report = &steps.report;
    json_t *row = json_object();
    row_set_text(row, "model", subject->name);
    row_set_int(row, "image", study_image_side(subject));
    row_set_real(row, "budget_share", (double)bytes / (double)subject->ideal_bytes);
    row_set_int(row, "budget_bytes", (int64_t)bytes);
    row_set_text(row, "variant", variants[v].name);
    row_set_int(row, "fits", steps.is_fitting ? 1 : 0);
    row_set_int(row, "needed_bytes",
                (int64_t)(steps.is_fitting ? report->least_budget_bytes : steps.needed_bytes));
    if (steps.is_fitting) {
        row_set_int(row, "planned_bytes", (int64_t)report->planned_bytes);
        row_set_real(row, "predicted_ms", report->predicted_ms);
        row_set_real(row, "ideal_ms", report->ideal_ms);
        row_set_real(row, "redo_share", report->recompute_ms / report->predicted_ms);
        row_set_int(row, "n_slices", report->n_slices);
        row_set_int(row, "n_regions", report->n_regions);
        row_set_int(row, "swap_bytes", (int64_t)(report->swap_out_bytes + report->swap_in_bytes));
        study_set_times(row, &steps);
    }
    const bool is_found = find_max_batch(at, subject, &options, row);
    study_add_row(at, row);
    return is_found;
}

static void do_job(study *at, const char *model, int32_t image, const study_budget *budget,
                   size_t v)
{
    const study_subject *subject = study_open_subject(at, model, image, 0, 0);
    dunlin_dataset *data =
        subject == NULL ? NULL : study_open_data(at, subject, NULL, DUNLIN_SPLIT_TRAIN, N_EXAMPLES);
    if (data != NULL) {
        (void)add_row(at, subject, data, budget, v);
    }
    dunlin_dataset_close(data);
}

static int run(study *at)
{
    const bool is_quick = study_flags_of(at)->is_quick;
    const char *models[STUDY_MAX_LIST];
    study_budget budgets[STUDY_MAX_LIST];
    const int32_t n_models = study_models(
        at,
        is_quick ? "lenet5,mobilenet_v2,squeezenet1_1,resnet50"
                 : "lenet5,mobilenet_v1,mobilenet_v2,squeezenet1_1,resnet50,densenet121,"
                   "bert_small",
        models);
    const int32_t n_budgets = study_budgets(at, is_quick ? "65%" : "75%,60%,45%", budgets);
    for (int32_t m = 0; m < n_models; m++) {
        for (int32_t b = 0; b < n_budgets; b++) {
            for (size_t v = 0; v < N_VARIANTS; v++) {
                char note[96];
                const int32_t image = study_image(at, models[m], 64, 64);
                json_t *inputs = json_pack("{s:s, s:i, s:s, s:s, s:b}", "model", models[m], "image",
                                           (int)image, "variant", variants[v].name, "budget",
                                           budgets[b].text, "quick", is_quick);
                (void)snprintf(note, sizeof note, "ablation %s %s", models[m], variants[v].name);
                if (study_begin_job(at, inputs, study_weight(models[m]) * 4, note)) {
                    do_job(at, models[m], image, &budgets[b], v);
                    study_end_job(at);
                }
            }
        }
    }
    return EXIT_OK;
}

const study_kind study_ablation = {
    .name = "ablation",
    .title = "What each technique is worth",
    .question = "Which part of the planner buys the memory, and which the time?",
    .method =
        "Batch 32 in a share of the ideal's memory. \"pool\" shares memory by lifetime alone, "
        "\"recompute\" evicts on demand without a planned pool (the baseline of Melon), "
        "\"pool+recompute\" is the search on the whole batch, then slices with accumulation "
        "where no batch norm couples the batch, then regions in slices where one does; "
        "\"fusion off\" is all of it without fused operations. \"swap\" (vDNN) and "
        "\"swap+recompute\" (Capuchin) use a file, which the others do not.",
    .columns = columns,
    .run_fn = run,
};
