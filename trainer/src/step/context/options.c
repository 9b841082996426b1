/*
 * options.c - a trainer's options: defaults for zeros, limits by name.
 *
 * Invariant: what is taken in here needs no further check: every number is in its range, and no
 * option is set that another one makes meaningless.
 */
#include "options.h"

#include "context.h"
#include "step/build/choice.h"

#include <dunlin/trainer_advanced.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <math.h>
#include <string.h>

#define DEFAULT_BATCH 32
#define DEFAULT_MAX_RATIO 1.3
#define MAX_THREADS 256
/* Flash of a phone (UFS 2.1), one stream. */
#define DEFAULT_WRITE_MB_PER_S 250.0
#define DEFAULT_READ_MB_PER_S 800.0

static dunlin_status fail_option(dunlin_error *error, const char *name, double value,
                                 const char *limit)
{
    return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0, "option %s is %g; it must be %s",
                        name, value, limit);
}

dunlin_status dunlin__trainer_check_lr(float lr, dunlin_error *error)
{
    return isfinite(lr) && lr >= 0.0F
               ? DUNLIN_OK
               : fail_option(error, "lr", (double)lr, "finite and not negative");
}

/* A policy of dunlin_baselines; NULL: one of the trainer's own. */
static const char *published_name(dunlin_policy policy)
{
    static const char *const names[DUNLIN_POLICY_CAPUCHIN + 1] = {
        [DUNLIN_POLICY_RECOMPUTE] = "recompute", [DUNLIN_POLICY_SGC] = "sgc",
        [DUNLIN_POLICY_SAGE] = "sage",           [DUNLIN_POLICY_MELON] = "melon",
        [DUNLIN_POLICY_SUBLINEAR] = "sublinear", [DUNLIN_POLICY_VDNN] = "vdnn",
        [DUNLIN_POLICY_CAPUCHIN] = "capuchin"};
    return names[policy];
}

static dunlin_status check_sizes(const dunlin_trainer_options *options, dunlin_error *error)
{
    if (options->batch < 1 || options->batch > DUNLIN_TRAINER_MAX_BATCH) {
        return fail_option(error, "batch", (double)options->batch, "1 to 2^30");
    }
    if (options->micro_batch < 0) {
        return fail_option(error, "micro_batch", (double)options->micro_batch, "0 or more");
    }
    if (!(options->max_ratio >= 1.0)) {
        return fail_option(error, "max_ratio", options->max_ratio, "1 or more, or 0 for 1.3");
    }
    if (options->n_threads < 1 || options->n_threads > MAX_THREADS) {
        return fail_option(error, "n_threads", (double)options->n_threads, "0 to 256");
    }
    if (options->policy < DUNLIN_POLICY_AUTO || options->policy > DUNLIN_POLICY_CAPUCHIN) {
        return fail_option(error, "policy", (double)options->policy, "one of dunlin_policy");
    }
    if (published_name(options->policy) != NULL && options->baselines == NULL) {
        return dunlin__fail(
            error, DUNLIN_UNSUPPORTED, "trainer", 0,
            "option policy: %s is of the library dunlin_baselines; link it, and set "
            "baselines to dunlin_baselines_published()",
            published_name(options->policy));
    }
    return DUNLIN_OK;
}

static dunlin_status check_optimizer(const dunlin_trainer_options *options, dunlin_error *error)
{
    const dunlin_optimizer optimizer = options->optimizer;
    if (optimizer < DUNLIN_OPTIMIZER_SGD || optimizer > DUNLIN_OPTIMIZER_ADAMW) {
        return fail_option(error, "optimizer", (double)optimizer, "one of dunlin_optimizer");
    }
    DUNLIN_TRY(dunlin__trainer_check_lr(options->lr, error));
    if (!(options->momentum >= 0.0F && options->momentum < 1.0F)) {
        return fail_option(error, "momentum", (double)options->momentum, "in [0, 1)");
    }
    if (!isfinite(options->weight_decay) || options->weight_decay < 0.0F) {
        return fail_option(error, "weight_decay", (double)options->weight_decay,
                           "finite and not negative");
    }
    if (optimizer != DUNLIN_OPTIMIZER_SGD && options->momentum != 0.0F) {
        return fail_option(error, "momentum", (double)options->momentum, "0 with Adam (beta1)");
    }
    if (optimizer != DUNLIN_OPTIMIZER_SGD && options->is_nesterov) {
        return fail_option(error, "is_nesterov", 1.0, "0 with Adam");
    }
    if (options->is_nesterov && options->momentum == 0.0F) {
        return fail_option(error, "momentum", 0.0, "above 0 with is_nesterov");
    }
    if (!(options->beta1 >= 0.0 && options->beta1 < 1.0)) {
        return fail_option(error, "beta1", options->beta1, "in [0, 1)");
    }
    if (!(options->beta2 >= 0.0 && options->beta2 < 1.0)) {
        return fail_option(error, "beta2", options->beta2, "in [0, 1)");
    }
    if (!(options->eps > 0.0 && isfinite(options->eps))) {
        return fail_option(error, "eps", options->eps, "finite and not negative");
    }
    dunlin_schedule schedule;
    DUNLIN_TRY(dunlin__schedule_take(options->schedule, &schedule, error));
    return dunlin__schedule_check(&schedule, error);
}

static dunlin_status check_class_weights(const dunlin_trainer_options *options, dunlin_error *error)
{
    const float *weights = options->class_weights;
    const dunlin_loss loss = options->loss;
    if (options->n_class_weights < 0 || (options->n_class_weights > 0) != (weights != NULL)) {
        return fail_option(error, "n_class_weights", (double)options->n_class_weights,
                           "0 without class_weights, else above 0");
    }
    if (weights != NULL && loss != DUNLIN_LOSS_CROSS_ENTROPY && loss != DUNLIN_LOSS_BCE) {
        return fail_option(error, "n_class_weights", (double)options->n_class_weights,
                           "0 but with cross-entropy with labels and BCE");
    }
    for (int32_t i = 0; i < options->n_class_weights; i++) {
        if (!isfinite(weights[i]) || weights[i] < 0.0F) {
            return fail_option(error, "class_weights", (double)weights[i],
                               "finite and not negative, each of them");
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_loss(const dunlin_trainer_options *options, dunlin_error *error)
{
    if (options->loss < DUNLIN_LOSS_CROSS_ENTROPY || options->loss > DUNLIN_LOSS_TRIPLET) {
        return fail_option(error, "loss", (double)options->loss, "one of dunlin_loss");
    }
    if (!(options->label_smoothing >= 0.0F && options->label_smoothing < 1.0F)) {
        return fail_option(error, "label_smoothing", (double)options->label_smoothing, "in [0, 1)");
    }
    if (options->label_smoothing != 0.0F && options->loss != DUNLIN_LOSS_CROSS_ENTROPY &&
        options->loss != DUNLIN_LOSS_SOFT_CROSS_ENTROPY) {
        return fail_option(error, "label_smoothing", (double)options->label_smoothing,
                           "0 but with cross-entropy");
    }
    DUNLIN_TRY(check_class_weights(options, error));
    if (!isfinite(options->clip_value) || options->clip_value < 0.0F) {
        return fail_option(error, "clip_value", (double)options->clip_value,
                           "finite and not negative");
    }
    if (!isfinite(options->clip_norm) || options->clip_norm < 0.0F) {
        return fail_option(error, "clip_norm", (double)options->clip_norm,
                           "finite and not negative");
    }
    return DUNLIN_OK;
}

/* What a budget that changes in mid-step asks for. */
static dunlin_status check_lowest(const dunlin_trainer_options *options, dunlin_error *error)
{
    if (options->least_budget_bytes == 0) {
        return DUNLIN_OK;
    }
    if (options->policy == DUNLIN_POLICY_VDNN || options->policy == DUNLIN_POLICY_CAPUCHIN) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                            "option least_budget_bytes: a plan that swaps cannot be changed in "
                            "the middle of a step");
    }
    if ((options->slab != NULL || options->alloc.alloc_fn != NULL) && options->trim_fn == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                            "option least_budget_bytes asks for an arena that can be given back in "
                            "part; a slab and hooks cannot without option trim_fn");
    }
    if (options->ghost_statistics && options->micro_batch == 0) {
        return fail_option(error, "micro_batch", 0.0,
                           "set with ghost_statistics and least_budget_bytes: the weights depend "
                           "on the slices");
    }
    return DUNLIN_OK;
}

static dunlin_status fail_storage(const dunlin_trainer_options *options, const char *option,
                                  dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                        "option storage: %s together with %s is not there yet",
                        dunlin_storage_name(options->storage), option);
}

dunlin_status dunlin__trainer_check_storage(const dunlin_trainer_options *options,
                                            dunlin_error *error)
{
    const dunlin_policy policy = options->policy;
    if (options->storage < DUNLIN_STORAGE_EXACT || options->storage > DUNLIN_STORAGE_INT8) {
        return fail_option(error, "storage", (double)options->storage, "one of dunlin_storage");
    }
    if (options->storage == DUNLIN_STORAGE_EXACT) {
        return DUNLIN_OK;
    }
    if (options->no_fuse || policy == DUNLIN_POLICY_NONE) {
        return fail_storage(options, options->no_fuse ? "no_fuse" : "policy none", error);
    }
    if (policy == DUNLIN_POLICY_VDNN || policy == DUNLIN_POLICY_CAPUCHIN) {
        return fail_storage(options, published_name(policy), error);
    }
    if (options->ghost_statistics) {
        return fail_storage(options, "ghost_statistics", error);
    }
    return options->precision != NULL ? fail_storage(options, "precision", error) : DUNLIN_OK;
}

static dunlin_status check_options(const dunlin_trainer_options *options, dunlin_error *error)
{
    DUNLIN_TRY(check_sizes(options, error));
    DUNLIN_TRY(check_optimizer(options, error));
    DUNLIN_TRY(check_loss(options, error));
    DUNLIN_TRY(dunlin__trainer_check_storage(options, error));
    DUNLIN_TRY(dunlin__choice_check_options(options, error));
    if (options->n_gradient_slots < 0 || options->n_gradient_slots > DUNLIN_STEP_MAX_SLOTS) {
        return fail_option(error, "n_gradient_slots", (double)options->n_gradient_slots, "0 to 4");
    }
    if (options->n_gradient_slots > 0 && options->gradient_fn == NULL) {
        return fail_option(error, "n_gradient_slots", (double)options->n_gradient_slots,
                           "0 without gradient_fn");
    }
    if (!(options->swap_write_mb_per_s > 0.0 && isfinite(options->swap_write_mb_per_s))) {
        return fail_option(error, "swap_write_mb_per_s", options->swap_write_mb_per_s,
                           "finite and not negative");
    }
    if (!(options->swap_read_mb_per_s > 0.0 && isfinite(options->swap_read_mb_per_s))) {
        return fail_option(error, "swap_read_mb_per_s", options->swap_read_mb_per_s,
                           "finite and not negative");
    }
    if ((options->alloc.alloc_fn == NULL) != (options->alloc.free_fn == NULL)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option alloc has no %s; it takes both functions or none",
                            options->alloc.alloc_fn == NULL ? "alloc_fn" : "free_fn");
    }
    if (options->slab != NULL && (uintptr_t)options->slab % DUNLIN_MEM_ALIGN != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option slab is not aligned to %d bytes", DUNLIN_MEM_ALIGN);
    }
    return check_lowest(options, error);
}

dunlin_status dunlin__trainer_take_options(const dunlin_trainer_options *from,
                                           dunlin_trainer_options *out, dunlin_error *error)
{
    *out = (dunlin_trainer_options){.struct_size = sizeof *out};
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_trainer_options, from, out, error));
    out->batch = out->batch == 0 ? DEFAULT_BATCH : out->batch;
    out->n_threads = out->n_threads == 0 ? 1 : out->n_threads;
    out->max_ratio = out->max_ratio == 0.0 ? DEFAULT_MAX_RATIO : out->max_ratio;
    out->beta1 = out->beta1 == 0.0 ? 0.9 : out->beta1;
    out->beta2 = out->beta2 == 0.0 ? 0.999 : out->beta2;
    out->eps = out->eps == 0.0 ? 1e-8 : out->eps;
    out->swap_write_mb_per_s =
        out->swap_write_mb_per_s == 0.0 ? DEFAULT_WRITE_MB_PER_S : out->swap_write_mb_per_s;
    out->swap_read_mb_per_s =
        out->swap_read_mb_per_s == 0.0 ? DEFAULT_READ_MB_PER_S : out->swap_read_mb_per_s;
    out->budget_bytes = out->policy == DUNLIN_POLICY_IDEAL ? 0 : out->budget_bytes;
    return check_options(out, error);
}
