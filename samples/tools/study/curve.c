/*
 * curve.c - memory against time, from no optimisation down to the floor, for each policy (Sage's
 * main figure).
 */
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <stdio.h>

#define N_EXAMPLES 64

static const char *const columns[] = {
    "model",        "image",       "batch",      "policy",       "budget_share",  "budget_bytes",
    "ideal_bytes",  "floor_bytes", "fits",       "needed_bytes", "planned_bytes", "predicted_ms",
    "ideal_ms",     "redo_share",  "swap_bytes", "swap_share",   "n_slices",      "n_regions",
    "time_step_ms", STUDY_TIMES,   NULL};

static void add_row(study *at, const study_subject *subject, const study_budget *budget,
                    dunlin_policy policy, const study_steps *steps, int64_t batch)
{
    const dunlin_trainer_report *report = &steps->report;
    json_t *row = json_object();
    const uint64_t bytes = study_bytes(budget, subject);
    row_set_text(row, "model", subject->name);
    row_set_int(row, "image", study_image_side(subject));
    row_set_int(row, "batch", batch);
    row_set_text(row, "policy", policy_name(policy));
    row_set_real(row, "budget_share", (double)bytes / (double)subject->ideal_bytes);
    row_set_int(row, "budget_bytes", (int64_t)bytes);
    row_set_int(row, "ideal_bytes", (int64_t)subject->ideal_bytes);
    row_set_int(row, "fits", steps->is_fitting ? 1 : 0);
    row_set_int(row, "needed_bytes",
                (int64_t)(steps->is_fitting ? report->least_budget_bytes : steps->needed_bytes));
    if (steps->is_fitting) {
        row_set_int(row, "floor_bytes", (int64_t)report->floor_bytes);
        row_set_int(row, "planned_bytes", (int64_t)report->planned_bytes);
        row_set_real(row, "predicted_ms", report->predicted_ms);
        row_set_real(row, "ideal_ms", report->ideal_ms);
        row_set_real(row, "redo_share", report->recompute_ms / report->predicted_ms);
        row_set_int(row, "swap_bytes", (int64_t)(report->swap_out_bytes + report->swap_in_bytes));
        row_set_real(row, "swap_share", report->swap_ms / report->predicted_ms);
        row_set_int(row, "n_slices", report->n_slices);
        row_set_int(row, "n_regions", report->n_regions);
        study_set_times(row, steps);
    }
    study_add_row(at, row);
}

static void do_job(study *at, const char *model, int32_t image, dunlin_policy policy,
                   const study_budget *budgets, int32_t n, int64_t batch)
{
    const study_flags *flags = study_flags_of(at);
    const study_subject *subject = study_open_subject(at, model, image, 0, 0);
    dunlin_dataset *data =
        subject == NULL ? NULL : study_open_data(at, subject, NULL, DUNLIN_SPLIT_TRAIN, N_EXAMPLES);
    for (int32_t i = 0; data != NULL && i < n; i++) {
        const dunlin_trainer_options options =
            study_options(at, subject, policy, study_bytes(&budgets[i], subject), batch);
        study_steps steps;
        if (!study_take_steps(at, subject, &options, data, flags->is_quick ? 0 : flags->steps,
                              &steps)) {
            break;
        }
        add_row(at, subject, &budgets[i], policy, &steps, batch);
    }
    dunlin_dataset_close(data);
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
    const int32_t n_budgets = study_budgets(
        at, is_quick ? "250%,100%,85%,70%,55%" : "250%,100%,90%,80%,70%,60%,50%,40%,30%,20%",
        budgets);
    const int32_t n_policies = study_policies(
        at, "none,pool,recompute,sublinear,sgc,microbatch,sage,melon,vdnn,capuchin,auto", policies);
    for (int32_t m = 0; m < n_models; m++) {
        for (int32_t p = 0; p < n_policies; p++) {
            char note[96];
            const int32_t image = study_image(at, models[m], 64, 64);
            json_t *texts = json_array();
            for (int32_t b = 0; b < n_budgets; b++) {
                (void)json_array_append_new(texts, json_string(budgets[b].text));
            }
            json_t *inputs =
                json_pack("{s:s, s:i, s:s, s:o, s:b}", "model", models[m], "image", (int)image,
                          "policy", policy_name(policies[p]), "budgets", texts, "quick", is_quick);
            (void)snprintf(note, sizeof note, "curve %s %s", models[m], policy_name(policies[p]));
            if (study_begin_job(at, inputs, study_weight(models[m]) * n_budgets, note)) {
                do_job(at, models[m], image, policies[p], budgets, n_budgets, STUDY_BATCH);
                study_end_job(at);
            }
        }
    }
    return EXIT_OK;
}

const study_kind study_curve = {
    .name = "curve",
    .title = "Memory against time",
    .question = "How much slower does a step of batch 32 become as its memory shrinks?",
    .method = "Budgets are shares of what the ideal step takes. Each point is a plan's own bytes "
              "and its time beside the ideal; a line ends where its policy finds no plan. With "
              "--quick no step is taken. Swaps are predicted at the speed of --swap-speed.",
    .columns = columns,
    .run_fn = run,
};
