/*
 * report.c - results: the plan as a file, the JSON object.
 */
#include "common/output.h"
#include "common/policies.h"
#include "common/price.h"
#include "train.h"

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

static void set_bytes(json_t *object, const char *key, uint64_t bytes)
{
    (void)json_object_set_new(object, key, json_integer((json_int_t)bytes));
}

static void set_number(json_t *object, const char *key, int64_t number)
{
    (void)json_object_set_new(object, key, json_integer(number));
}

static void set_real(json_t *object, const char *key, double number)
{
    /* What is not finite is no JSON number: it becomes null. */
    json_t *value = json_real(number);
    (void)json_object_set_new(object, key, value == NULL ? json_null() : value);
}

static void set_text(json_t *object, const char *key, const char *text)
{
    (void)json_object_set_new(object, key, text == NULL ? json_null() : json_string(text));
}

static json_t *class_object(const dunlin_class_bytes *by_class)
{
    json_t *object = json_object();
    set_bytes(object, "weights", by_class->weights);
    set_bytes(object, "statistics", by_class->statistics);
    set_bytes(object, "optimizer", by_class->optimizer);
    set_bytes(object, "input", by_class->input);
    set_bytes(object, "activations", by_class->activations);
    set_bytes(object, "saved", by_class->saved);
    set_bytes(object, "gradients", by_class->gradients);
    set_bytes(object, "accumulators", by_class->accumulators);
    set_bytes(object, "workspace", by_class->workspace);
    set_bytes(object, "padding", by_class->padding);
    set_bytes(object, "tables", by_class->tables);
    return object;
}

static void set_plan(json_t *root, const train_flags *flags, const dunlin_trainer_report *report)
{
    bool is_sliced = report->micro_batch < report->batch;
    set_bytes(root, "budget_bytes", flags->budget_bytes);
    set_text(root, "policy", policy_name(flags->policy_value));
    set_number(root, "micro_batch", report->micro_batch);
    set_bytes(root, "planned_bytes", report->planned_bytes);
    set_bytes(root, "peak_bytes", report->peak_bytes);
    set_bytes(root, "lower_bound_bytes", report->lower_bound_bytes);
    set_bytes(root, "pool_bytes", report->pool_bytes);
    set_bytes(root, "pool_lower_bound_bytes", report->pool_lower_bound_bytes);
    (void)json_object_set_new(root, "by_class", class_object(&report->by_class));
    set_number(root, "n_ops", report->n_ops);
    set_number(root, "n_recomputed", report->n_recomputed);
    set_real(root, "recompute_share",
             report->predicted_ms > 0.0 ? report->redo_ms / report->predicted_ms : 0.0);
    set_number(root, "n_remade", report->n_remade);
    set_bytes(root, "remade_bytes", report->remade_bytes);
    set_number(root, "n_kept", report->n_kept);
    set_bytes(root, "kept_bytes", report->kept_bytes);
    set_number(root, "n_swapped", report->n_swapped);
    set_bytes(root, "swap_out_bytes", report->swap_out_bytes);
    set_bytes(root, "swap_in_bytes", report->swap_in_bytes);
    set_real(root, "swap_ms", report->swap_ms);
    set_text(root, "swap_way", report->swap_way);
    set_bytes(root, "swapped_out_bytes", report->swapped_out_bytes);
    set_bytes(root, "swapped_in_bytes", report->swapped_in_bytes);
    set_real(root, "swapped_out_ms", report->swapped_out_ms);
    set_real(root, "swapped_in_ms", report->swapped_in_ms);
    set_real(root, "plan_ms", report->plan_ms);
    set_real(root, "predicted_ms", report->predicted_ms);
    (void)json_object_set_new(root, "plan_kept", json_boolean(report->is_plan_kept));
    set_real(root, "ideal_ms", report->ideal_ms);
    set_number(root, "threads", report->n_threads);
    set_text(root, "isa", report->isa);
    if (report->least_budget_bytes != 0) { /* estimates look for it, trainers that fit do not */
        set_bytes(root, "least_budget_bytes", report->least_budget_bytes);
    }
    set_bytes(root, "floor_bytes", report->floor_bytes);
    set_number(root, "n_sliced", is_sliced ? report->n_loops : 0);
    set_number(root, "n_slices", report->n_slices);
    set_number(root, "n_regions", report->n_regions);
    set_number(root, "least_micro_batch", report->least_micro_batch);
    (void)json_object_set_new(root, "ghost", json_boolean(report->is_ghost));
    set_number(root, "n_ghost_norms", report->n_ghost_norms);
    set_text(root, "packing", report->packing);
}

static json_t *changes_array(const train_result *result)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < result->n_changes; i++) {
        const dunlin_budget_change *change = &result->changes[i];
        json_t *row = json_object();
        set_number(row, "step", change->step);
        set_real(row, "percent", change->percent);
        set_bytes(row, "from_bytes", change->from_bytes);
        set_bytes(row, "to_bytes", change->to_bytes);
        set_text(row, "way", train_way_name(change->way));
        set_bytes(row, "moved_bytes", change->moved_bytes);
        set_bytes(row, "arena_bytes", change->arena_bytes);
        set_real(row, "took_ms", change->took_ms);
        set_real(row, "given_back_ms", change->given_back_ms);
        set_real(row, "redo_ms", change->redo_ms);
        set_real(row, "reach_ms", change->reach_ms);
        set_real(row, "rest_ms", change->rest_ms);
        set_real(row, "left_ms", change->left_ms);
        set_real(row, "saved_share", train_saved_share(change));
        (void)json_array_append_new(array, row);
    }
    return array;
}

static void set_run(json_t *root, const train_flags *flags, const train_result *result)
{
    double seconds = result->fit_ms / 1e3;
    set_real(root, "step_ms_median", result->step_ms_median);
    set_real(root, "samples_per_s", seconds > 0.0 ? (double)result->n_seen / seconds : 0.0);
    set_bytes(root, "rss_peak_bytes", result->rss_peak_bytes);
    set_bytes(root, "rss_growth_bytes", result->rss_growth_bytes);
    set_bytes(root, "anon_growth_bytes", result->anon_growth_bytes);
    set_bytes(root, "file_growth_bytes", result->file_growth_bytes);
    if (result->cgroup_peak_bytes != 0) {
        set_bytes(root, "cgroup_peak_bytes", result->cgroup_peak_bytes);
    } else {
        (void)json_object_set_new(root, "cgroup_peak_bytes", json_null());
    }
    set_real(root, "loss_first", result->loss_first);
    set_real(root, "loss_last", result->loss_last);
    set_number(root, "steps", result->n_steps);
    set_number(root, "examples", result->n_seen);
    set_real(root, "fit_ms", result->fit_ms);
    set_text(root, "dataset", flags->choice.name);
    set_text(root, "dataset_title", result->data_title);
    (void)json_object_set_new(root, "synthetic", json_boolean(result->is_synthetic));
    set_number(root, "train_examples", result->n_train);
    set_real(root, "lr", flags->lr);
    set_text(root, "loss", flags->loss);
    set_text(root, "optimizer", flags->optimizer);
    set_text(root, "schedule", flags->schedule);
    set_real(root, "momentum", flags->momentum);
    set_number(root, "seed", (int64_t)flags->seed);
    char hash[32];
    (void)snprintf(hash, sizeof hash, "%016" PRIx64, result->weights_hash);
    set_text(root, "weights_hash", hash);
    set_bytes(root, "pipeline_bytes", result->pipeline.bytes);
    (void)json_object_set_new(root, "adaptation", changes_array(result));
    if (result->has_eval) {
        set_real(root, "test_accuracy", result->eval.accuracy);
        set_real(root, "test_top5_accuracy", result->eval.top5_accuracy);
        set_real(root, "test_loss", result->eval.loss);
        set_number(root, "test_examples", result->eval.n_examples);
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
    set_real(object, "time_ratio", fit->time_ratio);
    set_batch(object, "max_batch_any", found->any.batch);
    set_real(object, "time_ratio_any", fit->time_ratio_any);
    set_text(object, "ratio_base", PRICE_BASE);
    /* At any price the fastest is not looked for. */
    const bool has_base = found->any.batch > 0 && isfinite(flags->max_ratio);
    set_real(object, "ratio_base_ms", has_base ? found->fastest.example_ms : (double)NAN);
    set_batch(object, "ratio_base_batch", has_base ? found->fastest.batch : INT64_MAX);
    set_real(object, "max_ratio", flags->max_ratio);
}

static json_t *fits_array(const train_flags *flags, const train_result *result)
{
    json_t *array = json_array();
    for (int32_t i = 0; i < result->n_fits; i++) {
        const train_fit *fit = &result->fits[i];
        const dunlin_batch_price *capped = &fit->found.capped;
        json_t *row = json_object();
        const bool has_rate = capped->batch > 0;
        set_bytes(row, "budget_bytes", fit->found.budget_bytes);
        set_fit(row, flags, fit);
        (void)json_object_set_new(row, "predicted_samples_per_s",
                                  has_rate ? json_real(1e3 / capped->example_ms) : json_null());
        (void)json_object_set_new(row, "recompute_share",
                                  has_rate ? json_real(capped->redo_share) : json_null());
        (void)json_object_set_new(row, "micro_batch",
                                  has_rate ? json_integer(capped->micro_batch) : json_null());
        (void)json_array_append_new(array, row);
    }
    return array;
}

/* What there is to say beside the fits where nothing fits: no plan. */
static void set_refused(json_t *root, const train_flags *flags, const train_result *result)
{
    set_bytes(root, "budget_bytes", flags->budget_bytes);
    set_text(root, "policy", policy_name(flags->policy_value));
    set_bytes(root, "least_budget_bytes", result->report.least_budget_bytes);
}

int train_write_json(const train_flags *flags, const train_result *result)
{
    if (flags->json == NULL) {
        return EXIT_OK;
    }
    json_t *root = json_object();
    set_text(root, "model", flags->model);
    const bool is_refused = result->refusal[0] != '\0';
    set_number(root, "batch",
               result->n_fits > 0 || is_refused ? flags->batch : result->report.batch);
    set_number(root, "image", result->image);
    set_number(root, "params", result->n_params);
    if (is_refused) {
        set_refused(root, flags, result);
    } else if (result->n_fits == 0) {
        set_plan(root, flags, &result->report);
    } else {
        set_text(root, "policy", policy_name(flags->policy_value));
    }
    if (result->n_fits > 0) {
        (void)json_object_set_new(root, "what_fits", fits_array(flags, result));
    }
    set_text(root, "costs", result->costs_name);
    if (result->has_run) {
        set_run(root, flags, result);
    } else {
        static const char *const of_a_run[] = {"step_ms_median", "samples_per_s", "rss_peak_bytes",
                                               "loss_first", "loss_last"};
        for (size_t i = 0; i < sizeof of_a_run / sizeof of_a_run[0]; i++) {
            set_text(root, of_a_run[i], NULL);
        }
    }
    if (result->has_max_batch) {
        set_fit(root, flags, &result->max_fit);
    }
    if (result->has_max_batch || result->n_fits > 0) {
        set_text(root, "error", is_refused ? result->refusal : NULL);
    }
    char error[OUTPUT_ERROR_BYTES];
    bool is_written = output_json(flags->json, root, error);
    json_decref(root);
    return is_written ? EXIT_OK : program_fail(&train_program, "%s", error);
}
