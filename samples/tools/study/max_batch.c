/*
 * max_batch.c - the largest batch that fits a budget, for each model and policy (Melon's figure of
 * maximum batch sizes).
 */
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <math.h>
#include <stdio.h>

static const char *const columns[] = {"model",        "image",  "budget_bytes",    "policy",
                                      "max_batch",    "is_any", "ratio_predicted", "least_bytes",
                                      "time_plan_ms", NULL};

/* What was found for one budget. */
typedef struct found_batch {
    uint64_t budget_bytes;
    uint64_t least_bytes;
    int64_t batch; /* INT64_MAX: any */
    double ratio;
    double plan_ms;
} found_batch;

static void add_row(study *at, const study_subject *subject, dunlin_policy policy,
                    const found_batch *found)
{
    json_t *row = json_object();
    row_set_text(row, "model", subject->name);
    row_set_int(row, "image", subject->image);
    row_set_int(row, "budget_bytes", (int64_t)found->budget_bytes);
    row_set_text(row, "policy", policy_name(policy));
    if (found->batch == INT64_MAX) {
        row_set_text(row, "max_batch", NULL);
    } else {
        row_set_int(row, "max_batch", found->batch);
    }
    row_set_int(row, "is_any", found->batch == INT64_MAX ? 1 : 0);
    row_set_real(row, "ratio_predicted", found->ratio);
    row_set_int(row, "least_bytes", (int64_t)found->least_bytes);
    row_set_real(row, "time_plan_ms", found->plan_ms);
    study_add_row(at, row);
}

/* What an example takes at that batch, over what it takes in the ideal step of 32; not a number
 * where any batch fits, or none. */
static double ratio_at(const study_subject *subject, dunlin_trainer_options options,
                       uint64_t budget_bytes, int64_t batch)
{
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_error error = {0};
    options.budget_bytes = budget_bytes;
    options.batch = batch;
    if (batch < 1 || batch == INT64_MAX ||
        dunlin_trainer_estimate(subject->model, &options, &report, &error) != DUNLIN_OK) {
        return (double)NAN;
    }
    return report.predicted_ms / (double)batch / (subject->ideal_ms / STUDY_BATCH);
}

/* One policy of one model over all budgets. */
static void do_job(study *at, const study_subject *subject, dunlin_policy policy,
                   const study_budget *budgets, int32_t n)
{
    dunlin_trainer_options options = study_options(at, subject, policy, 0, STUDY_BATCH);
    uint64_t bytes[STUDY_MAX_LIST];
    int64_t batches[STUDY_MAX_LIST];
    uint64_t least_bytes = 0;
    dunlin_error error = {0};
    for (int32_t i = 0; i < n; i++) {
        bytes[i] = study_bytes(&budgets[i], subject);
    }
    const double begin_ms = clock_ms();
    if (dunlin_trainer_max_batches(subject->model, &options, bytes, n, batches, &least_bytes,
                                   &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return;
    }
    const double ms = clock_ms() - begin_ms;
    for (int32_t i = 0; i < n; i++) {
        const found_batch found = {
            .budget_bytes = bytes[i],
            .least_bytes = least_bytes,
            .batch = batches[i],
            .ratio = ratio_at(subject, options, bytes[i], batches[i]),
            .plan_ms = ms,
        };
        add_row(at, subject, policy, &found);
    }
}

static int run(study *at)
{
    const bool is_quick = study_flags_of(at)->is_quick;
    const char *models[STUDY_MAX_LIST];
    study_budget budgets[STUDY_MAX_LIST];
    dunlin_policy policies[STUDY_MAX_LIST];
    const int32_t n_models = study_models(
        at, "lenet5,mobilenet_v1,mobilenet_v2,squeezenet1_1,resnet50,densenet121,bert_small",
        models);
    const int32_t n_budgets =
        study_budgets(at, is_quick ? "75%,150%" : "50%,75%,100%,150%,200%", budgets);
    const int32_t n_policies = study_policies(
        at, "none,pool,recompute,sublinear,sgc,microbatch,sage,melon,vdnn,capuchin,auto", policies);
    for (int32_t m = 0; m < n_models; m++) {
        for (int32_t p = 0; p < n_policies; p++) {
            char note[96];
            const int32_t image = study_image(at, models[m], 64, 224);
            json_t *texts = json_array();
            for (int32_t b = 0; b < n_budgets; b++) {
                (void)json_array_append_new(texts, json_string(budgets[b].text));
            }
            json_t *inputs =
                json_pack("{s:s, s:i, s:s, s:o}", "model", models[m], "image", (int)image, "policy",
                          policy_name(policies[p]), "budgets", texts);
            const int64_t units =
                study_weight(models[m]) * (policies[p] == DUNLIN_POLICY_AUTO ? 10 : 2);
            (void)snprintf(note, sizeof note, "max-batch %s %s", models[m],
                           policy_name(policies[p]));
            if (study_begin_job(at, inputs, units, note)) {
                const study_subject *subject = study_open_subject(at, models[m], image, 0, 0);
                if (subject != NULL) {
                    do_job(at, subject, policies[p], budgets, n_budgets);
                }
                study_end_job(at);
            }
        }
    }
    return EXIT_OK;
}

const study_kind study_max_batch = {
    .name = "max-batch",
    .title = "The largest batch within a budget",
    .question = "How many examples fit into one optimiser step within a byte budget?",
    .method = "Found by planning alone, for budgets that are shares of what the ideal step of "
              "batch 32 takes (nothing recomputed, memory shared by lifetime). \"Any\": slices of "
              "the step make every batch fit. What an example then takes, over the ideal step of "
              "32, is predicted.",
    .columns = columns,
    .run_fn = run,
};
