/*
 * report.c - results: the plan as a file, the JSON object.
 */
#include "common/output.h"
#include "common/policies.h"
#include "common/price.h"
#include "object.h"
#include "train.h"

#include <dunlin/tools.h>
#include <dunlin/trainer_experimental.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void write_text(void *ctx, const char *text)
{
    (void)fputs(text, ctx);
}

static void write_line(void *ctx, const char *line)
{
    (void)fprintf(ctx, "%s\n", line);
}

int train_dump_plan(const train_flags *flags, const dunlin_trainer *trainer,
                    const train_result *result)
{
    output out;
    if (!output_begin(&out, flags->plan_dump)) {
        return program_fail(&train_program, "%s", out.error);
    }
    size_t n = strlen(flags->plan_dump);
    if (strcmp(flags->plan_dump + n - 4, ".svg") == 0) {
        char title[TRAIN_TITLE_BYTES];
        train_title(flags, result, title);
        dunlin_trainer_draw_plan(trainer, title, write_text, out.file);
    } else {
        dunlin_trainer_dump_plan(trainer, write_line, out.file);
    }
    return output_end(&out) ? EXIT_OK : program_fail(&train_program, "%s", out.error);
}

static json_t *class_object(const dunlin_class_bytes *by_class)
{
    json_t *object = json_object();
    object_bytes(object, "weights", by_class->weights);
    object_bytes(object, "statistics", by_class->statistics);
    object_bytes(object, "optimizer", by_class->optimizer);
    object_bytes(object, "input", by_class->input);
    object_bytes(object, "activations", by_class->activations);
    object_bytes(object, "saved", by_class->saved);
    object_bytes(object, "gradients", by_class->gradients);
    object_bytes(object, "accumulators", by_class->accumulators);
    object_bytes(object, "workspace", by_class->workspace);
    object_bytes(object, "padding", by_class->padding);
    object_bytes(object, "tables", by_class->tables);
    return object;
}

/* Of a sample, by what its tensors of fewer bits are stored in. */
static json_t *stored_object(const dunlin_trainer_report *report)
{
    json_t *object = json_object();
    json_t *bf16 = json_object();
    object_number(bf16, "tensors", report->n_narrow - report->n_int8);
    object_bytes(bf16, "bytes", report->narrow_bytes - report->int8_bytes);
    (void)json_object_set_new(object, "bf16", bf16);
    if (report->storage == DUNLIN_STORAGE_INT8) {
        json_t *int8 = json_object();
        object_number(int8, "tensors", report->n_int8);
        object_bytes(int8, "bytes", report->int8_bytes);
        (void)json_object_set_new(object, "int8", int8);
    }
    return object;
}

static void set_plan(json_t *root, const train_flags *flags, const dunlin_trainer_report *report)
{
    bool is_sliced = report->micro_batch < report->batch;
    object_bytes(root, "budget_bytes", flags->budget_bytes);
    object_text(root, "policy", policy_name(flags->policy_value));
    object_number(root, "micro_batch", report->micro_batch);
    object_bytes(root, "planned_bytes", report->planned_bytes);
    object_bytes(root, "peak_bytes", report->peak_bytes);
    object_bytes(root, "lower_bound_bytes", report->lower_bound_bytes);
    object_bytes(root, "pool_bytes", report->pool_bytes);
    object_bytes(root, "pool_lower_bound_bytes", report->pool_lower_bound_bytes);
    (void)json_object_set_new(root, "by_class", class_object(&report->by_class));
    object_number(root, "n_ops", report->n_ops);
    object_number(root, "n_recomputed", report->n_recomputed);
    object_real(root, "recompute_share",
                report->predicted_ms > 0.0 ? report->recompute_ms / report->predicted_ms : 0.0);
    object_number(root, "n_remade", report->n_remade);
    object_bytes(root, "remade_bytes", report->remade_bytes);
    object_number(root, "n_kept", report->n_kept);
    object_bytes(root, "kept_bytes", report->kept_bytes);
    object_number(root, "n_swapped", report->n_swapped);
    object_bytes(root, "swap_out_bytes", report->swap_out_bytes);
    object_bytes(root, "swap_in_bytes", report->swap_in_bytes);
    object_real(root, "swap_ms", report->swap_ms);
    object_text(root, "swap_way", report->swap_way);
    object_bytes(root, "swapped_out_bytes", report->swapped_out_bytes);
    object_bytes(root, "swapped_in_bytes", report->swapped_in_bytes);
    object_real(root, "swapped_out_ms", report->swapped_out_ms);
    object_real(root, "swapped_in_ms", report->swapped_in_ms);
    object_real(root, "plan_ms", report->plan_ms);
    object_real(root, "predicted_ms", report->predicted_ms);
    object_flag(root, "plan_kept", report->is_plan_kept);
    object_real(root, "ideal_ms", report->ideal_ms);
    object_number(root, "threads", report->n_threads);
    object_text(root, "isa", report->isa);
    if (report->least_budget_bytes != 0) { /* estimates look for it, trainers that fit do not */
        object_bytes(root, "least_budget_bytes", report->least_budget_bytes);
    }
    object_bytes(root, "floor_bytes", report->floor_bytes);
    object_number(root, "n_sliced", is_sliced ? report->n_loops : 0);
    object_number(root, "n_slices", report->n_slices);
    object_number(root, "n_regions", report->n_regions);
    object_number(root, "least_micro_batch", report->least_micro_batch);
    object_flag(root, "ghost", report->is_ghost);
    object_number(root, "n_ghost_norms", report->n_ghost_norms);
    object_flag(root, "is_exact", report->is_exact);
    object_number(root, "n_narrow", report->n_narrow);
    object_bytes(root, "narrow_bytes", report->narrow_bytes);
    if (report->storage != DUNLIN_STORAGE_EXACT) {
        (void)json_object_set_new(root, "stored", stored_object(report));
    }
    object_text(root, "packing", report->packing);
}

static json_t *changes_array(const train_result *result)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < result->n_changes; i++) {
        const dunlin_budget_change *change = &result->changes[i];
        json_t *row = json_object();
        object_number(row, "step", change->step);
        object_real(row, "percent", change->percent);
        object_bytes(row, "from_bytes", change->from_bytes);
        object_bytes(row, "to_bytes", change->to_bytes);
        object_text(row, "way", train_way_name(change->way));
        object_bytes(row, "moved_bytes", change->moved_bytes);
        object_bytes(row, "arena_bytes", change->arena_bytes);
        object_real(row, "took_ms", change->took_ms);
        object_real(row, "given_back_ms", change->given_back_ms);
        object_real(row, "redo_ms", change->recompute_ms);
        object_real(row, "reach_ms", change->reach_ms);
        object_real(row, "rest_ms", change->rest_ms);
        object_real(row, "left_ms", change->left_ms);
        object_real(row, "saved_share", train_saved_share(change));
        (void)json_array_append_new(array, row);
    }
    return array;
}

/* All zero without a pipeline. */
static void put_pipeline(json_t *root, const train_result *result)
{
    const dunlin_pipeline_report *pipeline = &result->pipeline;
    object_bytes(root, "pipeline_bytes", pipeline->bytes);
    object_bytes(root, "decode_peak_bytes", result->decode_peak_bytes);
    object_number(root, "pipeline_threads", pipeline->n_threads);
    object_number(root, "pipeline_ready", pipeline->n_ready);
    object_number(root, "pipeline_waited", pipeline->n_waited);
    object_number(root, "pipeline_direct", pipeline->n_direct);
    object_real(root, "pipeline_waited_ms", (double)pipeline->waited_ns / 1e6);
    object_real(root, "pipeline_direct_ms", (double)pipeline->direct_ns / 1e6);
    object_real(root, "pipeline_waited_share", train_waited_share(result));
}

/* Of a model with several outputs: what each scored. */
static void put_outputs(json_t *root, const train_result *result)
{
    json_t *outputs = result->n_scores > 0 ? json_array() : NULL;
    for (int32_t i = 0; i < result->n_scores; i++) {
        json_t *row = json_object();
        object_text(row, "name", result->score_names[i]);
        object_real(row, "test_accuracy", result->scores[i].accuracy);
        object_real(row, "test_top5_accuracy", result->scores[i].top5_accuracy);
        object_real(row, "test_loss", result->scores[i].loss);
        (void)json_array_append_new(outputs, row);
    }
    if (outputs != NULL) {
        (void)json_object_set_new(root, "outputs", outputs);
    }
}

/* What --top-k asked for. */
static void put_tops(json_t *root, const train_flags *flags, const train_result *result)
{
    for (int32_t i = 0; i < flags->tops.n && result->has_ranks; i++) {
        char key[48];
        (void)snprintf(key, sizeof key, "test_top%" PRId32 "_accuracy", flags->tops.k[i]);
        object_real(root, key, train_top(result, flags->tops.k[i]));
    }
}

/* Means over classes, of each class, and the counts themselves: rows of a label. */
static void put_classes(json_t *root, const train_confusion *confusion)
{
    const int32_t n = confusion->n_classes;
    dunlin_class_scores means = DUNLIN_CLASS_SCORES_INIT;
    if (n == 0 || dunlin_confusion_means(confusion->counts, n, &means) != DUNLIN_OK) {
        return;
    }
    object_real(root, "test_mean_iou", means.iou);
    object_real(root, "test_mean_recall", means.recall);
    object_real(root, "test_mean_f1", means.f1);
    json_t *all = json_array();
    json_t *counts = json_array();
    for (int32_t c = 0; c < n; c++) {
        dunlin_class_scores scores = DUNLIN_CLASS_SCORES_INIT;
        json_t *one = json_object();
        json_t *row = json_array();
        if (dunlin_confusion_class(confusion->counts, n, c, &scores) == DUNLIN_OK) {
            object_number(one, "n", scores.n);
        }
        object_real(one, "precision", scores.precision);
        object_real(one, "recall", scores.recall);
        object_real(one, "f1", scores.f1);
        object_real(one, "iou", scores.iou);
        (void)json_array_append_new(all, one);
        for (int32_t k = 0; k < n; k++) {
            (void)json_array_append_new(row, json_integer(confusion->counts[c * n + k]));
        }
        (void)json_array_append_new(counts, row);
    }
    (void)json_object_set_new(root, "test_classes", all);
    (void)json_object_set_new(root, "test_confusion", counts);
}

/* Of networks that predict tokens. */
static void put_perplexity(json_t *root, const char *key, const train_result *result, double loss)
{
    if (result->predicts_tokens) {
        object_real(root, key, exp(loss));
    }
}

static void set_run(json_t *root, const train_flags *flags, const train_result *result)
{
    double seconds = result->fit_ms / 1e3;
    object_real(root, "step_ms_median", result->step_ms_median);
    object_real(root, "samples_per_s", seconds > 0.0 ? (double)result->n_seen / seconds : 0.0);
    object_bytes(root, "rss_peak_bytes", result->rss_peak_bytes);
    object_bytes(root, "rss_growth_bytes", result->rss_growth_bytes);
    object_bytes(root, "anon_growth_bytes", result->anon_growth_bytes);
    object_bytes(root, "file_growth_bytes", result->file_growth_bytes);
    if (result->cgroup_peak_bytes != 0) {
        object_bytes(root, "cgroup_peak_bytes", result->cgroup_peak_bytes);
    } else {
        (void)json_object_set_new(root, "cgroup_peak_bytes", json_null());
    }
    object_real(root, "loss_first", result->n_steps > 0 ? result->loss_first : (double)NAN);
    object_real(root, "loss_last", result->n_steps > 0 ? result->loss_last : (double)NAN);
    object_number(root, "steps", result->n_steps);
    object_number(root, "examples", result->n_seen);
    object_real(root, "fit_ms", result->fit_ms);
    object_text(root, "dataset", flags->choice.name);
    object_text(root, "dataset_title", result->data_title[0] != '\0' ? result->data_title : NULL);
    object_flag(root, "synthetic", result->is_synthetic);
    object_number(root, "train_examples", result->n_train);
    object_text(root, "data_sha256", result->data_sha256[0] != '\0' ? result->data_sha256 : NULL);
    object_real(root, "lr", train_is_integer(flags) ? (double)NAN : flags->lr);
    object_text(root, "precision", flags->precision != NULL ? flags->precision : "fp32");
    object_text(root, "storage", flags->storage);
    object_text(root, "grad_bits", train_is_integer(flags) ? flags->grad_bits : NULL);
    if (train_is_integer(flags)) {
        object_number(root, "n_clipped", result->report.n_clipped);
        (void)json_object_set(root, "scales", result->scales);
    }
    object_text(root, "loss", flags->loss);
    object_text(root, "optimizer", flags->optimizer);
    object_text(root, "schedule", flags->schedule);
    object_real(root, "momentum", flags->momentum);
    object_number(root, "seed", (int64_t)flags->seed);
    char hash[32];
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, result->weights_hash);
    object_text(root, "weights_hash", result->weights_hash != 0 ? hash : NULL);
    put_pipeline(root, result);
    (void)json_object_set_new(root, "adaptation", changes_array(result));
    if (result->has_eval) {
        object_real(root, "test_accuracy", result->eval.accuracy);
        object_real(root, "test_top5_accuracy", result->eval.top5_accuracy);
        put_tops(root, flags, result);
        object_real(root, "test_loss", result->eval.loss);
        object_number(root, "test_examples", result->eval.n_examples);
        put_perplexity(root, "test_perplexity", result, result->eval.loss);
        put_classes(root, &result->confusion);
        put_outputs(root, result);
    }
    if (result->has_validation) {
        object_real(root, "val_accuracy", result->validation.accuracy);
        object_real(root, "val_loss", result->validation.loss);
        object_number(root, "val_examples", result->validation.n_examples);
        put_perplexity(root, "val_perplexity", result, result->validation.loss);
    }
}

static void set_batch(json_t *object, const char *key, int64_t batch)
{
    (void)json_object_set_new(object, key, batch == INT64_MAX ? json_null() : json_integer(batch));
}

/* What fits: batches are null where any batch does, ratios where none does. */
static void set_fit(json_t *object, const train_flags *flags, const train_fit *fit)
{
    const dunlin_batch_fit *found = &fit->found;
    set_batch(object, "max_batch", found->capped.batch);
    object_real(object, "time_ratio", fit->time_ratio);
    set_batch(object, "max_batch_any", found->any.batch);
    object_real(object, "time_ratio_any", fit->time_ratio_any);
    object_text(object, "ratio_base", PRICE_BASE);
    /* At any price the fastest is not looked for. */
    const bool has_base = found->any.batch > 0 && isfinite(flags->max_ratio);
    object_real(object, "ratio_base_ms", has_base ? found->fastest.example_ms : (double)NAN);
    set_batch(object, "ratio_base_batch", has_base ? found->fastest.batch : INT64_MAX);
    object_real(object, "max_ratio", flags->max_ratio);
}

static json_t *fits_array(const train_flags *flags, const train_result *result)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < result->n_fits; i++) {
        const train_fit *fit = &result->fits[i];
        const dunlin_batch_price *capped = &fit->found.capped;
        json_t *row = json_object();
        const bool has_rate = capped->batch > 0;
        object_bytes(row, "budget_bytes", fit->found.budget_bytes);
        set_fit(row, flags, fit);
        (void)json_object_set_new(row, "predicted_samples_per_s",
                                  has_rate ? json_real(1e3 / capped->example_ms) : json_null());
        (void)json_object_set_new(row, "recompute_share",
                                  has_rate ? json_real(capped->recompute_share) : json_null());
        (void)json_object_set_new(row, "micro_batch",
                                  has_rate ? json_integer(capped->micro_batch) : json_null());
        (void)json_array_append_new(array, row);
    }
    return array;
}

/* What there is to say beside the fits where nothing fits: no plan. */
static void set_refused(json_t *root, const train_flags *flags, const train_result *result)
{
    object_bytes(root, "budget_bytes", flags->budget_bytes);
    object_text(root, "policy", policy_name(flags->policy_value));
    object_bytes(root, "least_budget_bytes", result->report.least_budget_bytes);
}

void train_set_outcome(json_t *root, int exit_status)
{
    const program_refusal *last = program_last_refusal();
    const bool is_ok = exit_status == EXIT_OK;
    object_text(root, "status", is_ok ? "ok" : dunlin_status_name(last->status));
    object_text(root, "error", is_ok ? NULL : last->text);
}

/* What there is to say of a run that ended before its plan was made. */
static void set_unplanned(json_t *root, const train_flags *flags)
{
    object_bytes(root, "budget_bytes", flags->budget_bytes);
    object_text(root, "policy", flags->policy);
}

int train_write_json(const train_flags *flags, const train_result *result, int exit_status)
{
    if (flags->json == NULL) {
        return exit_status;
    }
    json_t *root = json_object();
    const bool is_refused = result->refusal[0] != '\0';
    const bool has_plan = result->report.batch != 0;
    train_set_outcome(root, exit_status);
    object_text(root, "model", flags->model);
    object_number(root, "batch", has_plan && !is_refused ? result->report.batch : flags->batch);
    object_number(root, "image", result->image);
    object_number(root, "params", result->n_params);
    if (result->data_index_bytes != 0) {
        object_bytes(root, "data_index_bytes", result->data_index_bytes);
    }
    if (is_refused) {
        set_refused(root, flags, result);
    } else if (result->n_fits > 0) {
        object_text(root, "policy", policy_name(flags->policy_value));
    } else if (has_plan) {
        set_plan(root, flags, &result->report);
    } else {
        set_unplanned(root, flags);
    }
    if (result->n_fits > 0) {
        (void)json_object_set_new(root, "what_fits", fits_array(flags, result));
    }
    object_text(root, "costs", result->costs_name);
    if (has_plan) {
        train_set_facts(root, flags);
    }
    if (result->has_run) {
        set_run(root, flags, result);
    } else {
        static const char *const of_a_run[] = {"step_ms_median", "samples_per_s", "rss_peak_bytes",
                                               "loss_first", "loss_last"};
        for (size_t i = 0; i < sizeof of_a_run / sizeof of_a_run[0]; i++) {
            object_text(root, of_a_run[i], NULL);
        }
    }
    if (result->has_max_batch) {
        set_fit(root, flags, &result->max_fit);
    }
    char error[OUTPUT_ERROR_BYTES];
    const bool is_written = output_json(flags->json, root, error);
    json_decref(root);
    if (is_written) {
        return exit_status;
    }
    const int failed = program_fail(&train_program, "%s", error);
    return exit_status == EXIT_OK ? failed : exit_status;
}
