/*
 * throughput.c - examples per second at several batch sizes in one budget, for each policy, beside
 * the ideal step that has all the memory it wants.
 */
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>

#define N_EXAMPLES 512

static const char *const columns[] = {"model",
                                      "image",
                                      "budget_bytes",
                                      "batch",
                                      "policy",
                                      "fits",
                                      "needed_bytes",
                                      "planned_bytes",
                                      "peak_bytes",
                                      "micro_batch",
                                      "n_slices",
                                      "n_regions",
                                      "n_recomputed",
                                      "redo_share",
                                      "n_swapped",
                                      "swap_bytes",
                                      "swap_share",
                                      "predicted_ms",
                                      "predicted_samples_per_s",
                                      "weights_hash",
                                      "time_step_ms",
                                      "time_samples_per_s",
                                      "time_swap_out_ms",
                                      "time_swap_in_ms",
                                      "time_plan_ms",
                                      STUDY_TIMES,
                                      "operand_bytes",
                                      "energy_step_j",
                                      NULL};

static void add_row(study *at, const study_subject *subject, uint64_t budget_bytes, int64_t batch,
                    dunlin_policy policy, const study_steps *steps)
{
    const dunlin_trainer_report *report = &steps->report;
    json_t *row = json_object();
    row_set_text(row, "model", subject->name);
    row_set_int(row, "image", study_image_side(subject));
    row_set_int(row, "budget_bytes", (int64_t)budget_bytes);
    row_set_int(row, "batch", batch);
    row_set_text(row, "policy", policy_name(policy));
    row_set_int(row, "fits", steps->is_fitting ? 1 : 0);
    row_set_int(row, "needed_bytes",
                (int64_t)(steps->is_fitting ? report->least_budget_bytes : steps->needed_bytes));
    if (steps->is_fitting) {
        char hash[24];
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, steps->hash);
        row_set_int(row, "planned_bytes", (int64_t)report->planned_bytes);
        row_set_int(row, "peak_bytes", (int64_t)report->peak_bytes);
        row_set_int(row, "micro_batch", report->micro_batch);
        row_set_int(row, "n_slices", report->n_slices);
        row_set_int(row, "n_regions", report->n_regions);
        row_set_int(row, "n_recomputed", report->n_recomputed);
        row_set_real(row, "redo_share", report->recompute_ms / report->predicted_ms);
        row_set_int(row, "n_swapped", report->n_swapped);
        row_set_int(row, "swap_bytes", (int64_t)(report->swap_out_bytes + report->swap_in_bytes));
        row_set_real(row, "swap_share", report->swap_ms / report->predicted_ms);
        row_set_real(row, "predicted_ms", report->predicted_ms);
        row_set_real(row, "predicted_samples_per_s", 1e3 * (double)batch / report->predicted_ms);
        row_set_text(row, "weights_hash", hash);
        study_set_times(row, steps);
        row_set_real(row, "time_samples_per_s", 1e3 * (double)batch / steps->step_ms);
        if (report->n_swapped > 0) { /* of a step: one more ran than was timed */
            const double n_ran = (double)study_flags_of(at)->steps + 1.0;
            row_set_real(row, "time_swap_out_ms", report->swapped_out_ms / n_ran);
            row_set_real(row, "time_swap_in_ms", report->swapped_in_ms / n_ran);
        }
        row_set_real(row, "time_plan_ms", report->plan_ms);
        row_set_int(row, "operand_bytes", (int64_t)steps->operand_bytes);
        row_set_real(row, "energy_step_j", steps->energy_j);
    }
    study_add_row(at, row);
}

static void do_job(study *at, const char *model, int32_t image, const study_budget *budget,
                   int64_t batch, dunlin_policy policy)
{
    const study_subject *subject = study_open_subject(at, model, image, 0, 0);
    dunlin_dataset *data =
        subject == NULL ? NULL : study_open_data(at, subject, NULL, DUNLIN_SPLIT_TRAIN, N_EXAMPLES);
    if (data == NULL) {
        return;
    }
    const uint64_t bytes = study_bytes(budget, subject);
    const dunlin_trainer_options options = study_options(at, subject, policy, bytes, batch);
    study_steps steps;
    if (study_take_steps(at, subject, &options, data, study_flags_of(at)->steps, &steps)) {
        add_row(at, subject, bytes, batch, policy, &steps);
    }
    dunlin_dataset_close(data);
}

static int run(study *at)
{
    const bool is_quick = study_flags_of(at)->is_quick;
    const char *models[STUDY_MAX_LIST];
    study_budget budgets[STUDY_MAX_LIST];
    dunlin_policy policies[STUDY_MAX_LIST];
    int64_t batches[STUDY_MAX_LIST];
    const int32_t n_models = study_models(
        at, "lenet5,mobilenet_v1,mobilenet_v2,squeezenet1_1,resnet50,densenet121,bert_small",
        models);
    const int32_t n_budgets = study_budgets(at, "100%", budgets);
    const int32_t n_policies = study_policies(
        at, "ideal,none,pool,recompute,sublinear,sgc,microbatch,sage,melon,vdnn,capuchin,auto",
        policies);
    const int32_t n_batches = study_batches(at, is_quick ? "16,48" : "8,16,32,64,128", batches);
    const int64_t n_all = (int64_t)n_models * n_budgets * n_batches * n_policies;
    for (int64_t i = 0; i < n_all; i++) {
        const dunlin_policy policy = policies[i % n_policies];
        const int64_t batch = batches[i / n_policies % n_batches];
        const study_budget *budget = &budgets[i / n_policies / n_batches % n_budgets];
        const char *model = models[i / n_policies / n_batches / n_budgets];
        const int32_t image = study_image(at, model, 32, 64);
        char note[96];
        json_t *inputs = json_pack("{s:s, s:i, s:s, s:s, s:I, s:b}", "model", model, "image",
                                   (int)image, "policy", policy_name(policy), "budget",
                                   budget->text, "batch", (json_int_t)batch, "quick", is_quick);
        (void)snprintf(note, sizeof note, "throughput %s %s, batch %" PRId64, model,
                       policy_name(policy), batch);
        if (study_begin_job(at, inputs, study_weight(model) * batch / 16 + 1, note)) {
            do_job(at, model, image, budget, batch, policy);
            study_end_job(at);
        }
    }
    return EXIT_OK;
}

const study_kind study_throughput = {
    .name = "throughput",
    .title = "Examples per second at several batch sizes",
    .question = "What does it cost in time to train a batch in memory that it does not fit?",
    .method =
        "The budget is what the ideal step of batch 32 takes; larger batches have to be made "
        "to fit. Measured on this machine: processor time of some steps after one that "
        "is not counted, median and range. \"ideal\" has no budget. \"vdnn\" and \"capuchin\" "
        "write tensors out to a file on this machine's disk and read them back, past the page "
        "cache; what they wait for it is added.",
    .columns = columns,
    .run_fn = run,
};
