/*
 * report.c - results: the plan in words, the plan as a file, the JSON object.
 */
#include "common/output.h"
#include "train.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void train_print_plan(const train_flags *flags, const dunlin_trainer_report *report)
{
    char planned[SIZE_TEXT_BYTES];
    char lower[SIZE_TEXT_BYTES];
    char least[SIZE_TEXT_BYTES];
    char slices[64] = "whole";
    if (report->micro_batch < report->batch) {
        (void)snprintf(slices, sizeof slices, "in slices of %" PRId64, report->micro_batch);
    }
    printf("plan: batch %" PRId64 " %s, %s (lower bound %s, least budget %s), %" PRId32
           " ops, policy %s, %s, %.1f ms to plan\n",
           report->batch, slices, size_text(report->planned_bytes, planned),
           size_text(report->lower_bound_bytes, lower),
           size_text(report->least_budget_bytes, least), report->n_ops,
           train_policy_name(flags->policy_value), report->isa == NULL ? "?" : report->isa,
           report->plan_ms);
    (void)fflush(stdout);
}

static void write_text(void *ctx, const char *text)
{
    (void)fputs(text, ctx);
}

int train_dump_plan(const train_flags *flags, const dunlin_trainer *trainer)
{
    output out;
    if (!output_begin(&out, flags->plan_dump)) {
        return program_fail(&train_program, "%s", out.error);
    }
    size_t n = strlen(flags->plan_dump);
    if (strcmp(flags->plan_dump + n - 4, ".svg") == 0) {
        dunlin_trainer_draw_plan(trainer, write_text, out.file);
    } else {
        dunlin_trainer_dump_plan(trainer, write_text, out.file);
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
    set_text(root, "policy", train_policy_name(flags->policy_value));
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
             report->n_ops > 0 ? (double)report->n_recomputed / report->n_ops : 0.0);
    set_real(root, "plan_ms", report->plan_ms);
    set_number(root, "threads", report->n_threads);
    set_text(root, "isa", report->isa);
    set_bytes(root, "least_budget_bytes", report->least_budget_bytes);
    set_number(root, "n_sliced", is_sliced ? report->n_loops : 0);
    (void)json_object_set_new(root, "ghost", json_false());
    set_text(root, "packing", report->packing);
}

static void set_run(json_t *root, const train_flags *flags, const train_result *result)
{
    double seconds = result->fit_ms / 1e3;
    set_real(root, "step_ms_median", result->step_ms_median);
    set_real(root, "samples_per_s", seconds > 0.0 ? (double)result->n_seen / seconds : 0.0);
    set_bytes(root, "rss_peak_bytes", result->rss_peak_bytes);
    set_bytes(root, "rss_growth_bytes", result->rss_growth_bytes);
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
    if (result->has_eval) {
        set_real(root, "test_accuracy", result->eval.accuracy);
        set_real(root, "test_top5_accuracy", result->eval.top5_accuracy);
        set_real(root, "test_loss", result->eval.loss);
        set_number(root, "test_examples", result->eval.n_examples);
    }
}

int train_write_json(const train_flags *flags, const train_result *result)
{
    if (flags->json == NULL) {
        return EXIT_OK;
    }
    json_t *root = json_object();
    set_text(root, "model", flags->model);
    set_number(root, "batch", result->report.batch);
    set_number(root, "image", result->image);
    set_number(root, "params", result->n_params);
    set_plan(root, flags, &result->report);
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
        (void)json_object_set_new(root, "max_batch",
                                  result->max_batch == 0 ? json_null()
                                                         : json_integer(result->max_batch));
        /* The planner's costs are relative so far: no time is predicted. */
        (void)json_object_set_new(root, "time_ratio", json_null());
    }
    char error[OUTPUT_ERROR_BYTES];
    bool is_written = output_json(flags->json, root, error);
    json_decref(root);
    return is_written ? EXIT_OK : program_fail(&train_program, "%s", error);
}
