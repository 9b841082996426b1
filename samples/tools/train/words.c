/*
 * words.c - a plan in words: bytes, what is kept, recomputed and sliced, time.
 *
 * Invariant: aligned text within 100 columns; every figure is the report's.
 */
#include "common/policies.h"
#include "train.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>

#define BAR_COLUMNS 40

/* Sizes of one table have one unit, so that they can be compared at a glance. */
typedef struct {
    const char *unit;
    double unit_bytes;
    uint64_t sum;
} size_scale;

static size_scale scale_of(uint64_t bytes)
{
    const bool is_small = bytes < ((uint64_t)10 << 20);
    return (size_scale){is_small ? "KiB" : "MiB", is_small ? 1024.0 : 1048576.0, bytes};
}

static void print_class(const size_scale *scale, const char *name, uint64_t bytes)
{
    static const char full[BAR_COLUMNS + 1] = "########################################";
    if (bytes == 0) {
        return;
    }
    const double share = scale->sum == 0 ? 0.0 : (double)bytes / (double)scale->sum;
    const int n = (int)(share * BAR_COLUMNS + 0.5);
    printf("    %-16s %10.1f  %5.1f %%%s%.*s\n", name, (double)bytes / scale->unit_bytes,
           100.0 * share, n > 0 ? "  " : "", n, full);
}

static void print_classes(const dunlin_trainer_report *report)
{
    const dunlin_class_bytes *by_class = &report->by_class;
    const size_scale scale = scale_of(report->planned_bytes);
    printf("  %-18s %10s\n", "persistent", scale.unit);
    print_class(&scale, "weights", by_class->weights);
    print_class(&scale, "statistics", by_class->statistics);
    print_class(&scale, "optimizer", by_class->optimizer);
    print_class(&scale, "tables", by_class->tables);
    printf("  at the peak\n");
    print_class(&scale, "input", by_class->input);
    print_class(&scale, "activations", by_class->activations);
    print_class(&scale, "saved", by_class->saved);
    print_class(&scale, "gradients", by_class->gradients);
    print_class(&scale, "accumulators", by_class->accumulators);
    print_class(&scale, "workspace", by_class->workspace);
    print_class(&scale, "unused", by_class->padding);
}

static void print_size(const size_scale *scale, const char *name, uint64_t bytes, const char *words)
{
    printf("  %-18s %10.1f  %s\n", name, (double)bytes / scale->unit_bytes, words);
}

static void print_limits(const dunlin_trainer_report *report)
{
    const size_scale scale = scale_of(report->planned_bytes);
    char words[96];
    printf("  %-18s %10.1f\n", "planned", (double)report->planned_bytes / scale.unit_bytes);
    if (report->budget_bytes != 0) {
        print_size(&scale, "limit", report->budget_bytes, "--budget");
    } else {
        printf("  %-18s %10s\n", "limit", "none");
    }
    if (report->least_budget_bytes != 0) {
        print_size(&scale, "least", report->least_budget_bytes, "the least budget of this batch");
    }
    print_size(&scale, "floor", report->floor_bytes,
               "the largest operation's tensors, and all that is persistent");
    const double bound = (double)report->pool_lower_bound_bytes;
    (void)snprintf(words, sizeof words, "%.3f x the live bytes (%.40s)",
                   bound > 0.0 ? (double)report->pool_bytes / bound : 1.0,
                   report->packing == NULL ? "?" : report->packing);
    print_size(&scale, "pool", report->pool_bytes, words);
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

void train_print_ghost(const train_flags *flags, const dunlin_trainer_report *report)
{
    if (report->is_ghost) {
        printf("  %-18s %10" PRId32
               "  batch norm%s, statistics of each slice alone: other weights\n"
               "  %-18s %10s  than the exact step's, and by the slice size\n",
               "ghost", report->n_ghost_norms, plural(report->n_ghost_norms), "", "");
    } else if (flags->is_ghost) {
        printf("  %-18s %10s  %s: the exact step\n", "ghost", "none",
               report->n_ghost_norms > 0 ? "a single slice"
                                         : "no batch norm takes statistics of the batch");
    }
}

static void print_storage(const train_flags *flags, const dunlin_trainer_report *report)
{
    if (report->storage != DUNLIN_STORAGE_EXACT) {
        char words[64] = "";
        if (report->n_int8 > 0) {
            (void)snprintf(words, sizeof words, " (%" PRId32 " to int8, %" PRId32 " to bf16)",
                           report->n_int8, report->n_narrow - report->n_int8);
        }
        printf("  %-18s %10s  %" PRId32
               " tensor%s of the step rounded%s: other weights, by rounding\n",
               "storage", flags->storage, report->n_narrow, plural(report->n_narrow), words);
    }
}

static void print_choices(const train_flags *flags, const dunlin_trainer_report *report)
{
    const size_scale scale = scale_of(report->planned_bytes);
    char words[96];
    (void)snprintf(words, sizeof words,
                   "%" PRId32 " tensor%s, from the forward to the backward pass", report->n_kept,
                   plural(report->n_kept));
    print_size(&scale, "kept", report->kept_bytes, words);
    if (report->n_recomputed == 0) {
        printf("  %-18s %10s\n", "recomputed", "nothing");
    } else {
        (void)snprintf(
            words, sizeof words,
            "%" PRId32 " tensor%s: %" PRId32 " of %" PRId32
            " operations run again, %.1f %% of the time",
            report->n_remade, plural(report->n_remade), report->n_recomputed, report->n_ops,
            report->predicted_ms > 0.0 ? 100.0 * report->recompute_ms / report->predicted_ms : 0.0);
        print_size(&scale, "recomputed", report->remade_bytes, words);
    }
    if (report->n_swapped > 0) {
        (void)snprintf(words, sizeof words,
                       "%" PRId32 " tensor%s written out and read back, %.1f %% of the time",
                       report->n_swapped, plural(report->n_swapped),
                       100.0 * report->swap_ms / report->predicted_ms);
        print_size(&scale, "swapped", report->swap_out_bytes, words);
    }
    if (report->n_slices <= 1) {
        printf("  %-18s %10s\n", "slices", "none");
    } else if (report->n_regions > 1) {
        printf("  %-18s %10" PRId32 "  between batch norms, each in slices of its own, of %" PRId64
               " to %" PRId64 " examples\n",
               "regions", report->n_regions, report->least_micro_batch, report->micro_batch);
    } else {
        printf("  %-18s %10" PRId64 "  of at most %" PRId64
               " examples; their gradients are added up\n",
               "slices", report->n_slices, report->micro_batch);
    }
    train_print_ghost(flags, report);
    print_storage(flags, report);
}

static double over_ideal(const dunlin_trainer_report *report)
{
    return report->ideal_ms > 0.0 ? report->predicted_ms / report->ideal_ms : 1.0;
}

static void print_time(const dunlin_trainer_report *report)
{
    const double seconds = report->predicted_ms * 1e-3;
    printf("  %-18s %10.2f  predicted, %.1f examples/s\n", "ms a step", report->predicted_ms,
           seconds > 0.0 ? (double)report->batch / seconds : 0.0);
    printf("  %-18s %10.2f  nothing recomputed, memory unlimited; here %.3f x\n", "ideal",
           report->ideal_ms, over_ideal(report));
}

static void print_subject(const train_flags *flags, const train_result *result)
{
    const dunlin_trainer_report *report = &result->report;
    printf("plan of %s, ", flags->model);
    if (result->image > 0) {
        printf("image %" PRId64 ", ", result->image);
    }
    printf("batch %" PRId64 "\n  policy %s, %s, %" PRId32
           " thread%s, %s costs; %.1f ms to plan%s\n",
           report->batch, policy_name(report->policy), report->isa == NULL ? "?" : report->isa,
           report->n_threads, plural(report->n_threads),
           result->costs == NULL ? "roofline" : "measured", report->plan_ms,
           report->is_plan_kept ? " (kept)" : "");
}

void train_print_plan(const train_flags *flags, const train_result *result)
{
    const dunlin_trainer_report *report = &result->report;
    print_subject(flags, result);
    print_classes(report);
    print_limits(report);
    print_choices(flags, report);
    print_time(report);
    (void)fflush(stdout);
}

void train_title(const train_flags *flags, const train_result *result,
                 char out_title[TRAIN_TITLE_BYTES])
{
    const dunlin_trainer_report *report = &result->report;
    char image[32] = "";
    char budget[SIZE_TEXT_BYTES] = "no budget";
    if (result->image > 0) {
        (void)snprintf(image, sizeof image, " at %" PRId64, result->image);
    }
    if (report->budget_bytes != 0) {
        (void)size_text(report->budget_bytes, budget);
    }
    (void)snprintf(out_title, TRAIN_TITLE_BYTES,
                   "%.80s%s, batch %" PRId64 ", %s%s, policy %s%s: %.4g ms predicted, %.3f x ideal",
                   flags->model, image, report->batch, report->budget_bytes != 0 ? "budget " : "",
                   budget, policy_name(report->policy),
                   report->is_ghost ? ", ghost statistics" : "", report->predicted_ms,
                   over_ideal(report));
}
