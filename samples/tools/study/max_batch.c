/*
 * max_batch.c - the largest batch that fits a budget, for each model and policy (Melon's figure of
 * maximum batch sizes).
 */
#include "study.h"

#include <dunlin/batch.h>
#include <dunlin/trainer_advanced.h>

#include <math.h>
#include <stdio.h>

#define ANY_BATCH (1 << 30) /* at which the library prices "any" */

static const char *const columns[] = {"model",
                                      "image",
                                      "budget_bytes",
                                      "policy",
                                      "max_batch",
                                      "is_any",
                                      "ratio_predicted",
                                      "least_bytes",
                                      "time_plan_ms",
                                      "max_ratio",
                                      "priced_batch",
                                      "price",
                                      "predicted_samples_per_s",
                                      NULL};

/* What was found for one budget. */
typedef struct found_batch {
    uint64_t budget_bytes;
    uint64_t least_bytes;
    const dunlin_batch_price *price;
    double max_ratio; /* INFINITY: at any price */
    double plan_ms;
} found_batch;

/* What an example takes at that batch, over what it takes in the ideal step of 32, is the price. */
static void add_row(study *at, const study_subject *subject, dunlin_policy policy,
                    const found_batch *found)
{
    char name[48];
    json_t *row = json_object();
    const int64_t batch = found->price->batch;
    const bool is_any = batch == INT64_MAX;
    const double price = found->price->example_ms / (subject->ideal_ms / STUDY_BATCH);
    const bool is_priced = batch >= 1 && isfinite(price);
    (void)snprintf(name, sizeof name, "%s within %g x", policy_name(policy), found->max_ratio);
    row_set_text(row, "model", subject->name);
    row_set_int(row, "image", study_image_side(subject));
    row_set_int(row, "budget_bytes", (int64_t)found->budget_bytes);
    row_set_text(row, "policy", isinf(found->max_ratio) ? policy_name(policy) : name);
    row_set_text(row, "max_batch", NULL);
    if (!is_any) {
        row_set_int(row, "max_batch", batch);
    }
    row_set_int(row, "is_any", is_any ? 1 : 0);
    row_set_real(row, "ratio_predicted", is_any || batch < 1 ? (double)NAN : price);
    row_set_int(row, "least_bytes", (int64_t)found->least_bytes);
    row_set_real(row, "time_plan_ms", found->plan_ms);
    row_set_real(row, "max_ratio", found->max_ratio);
    if (is_priced) {
        row_set_int(row, "priced_batch", is_any ? ANY_BATCH : batch);
        row_set_real(row, "price", price);
        row_set_real(row, "predicted_samples_per_s", 1e3 / found->price->example_ms);
    }
    study_add_row(at, row);
}

/* One policy of one model over all budgets, with a limit of the price (INFINITY: none). */
static void do_job(study *at, const study_subject *subject, dunlin_policy policy, double max_ratio,
                   const study_budget *budgets, int32_t n)
{
    dunlin_trainer_options options = study_options(at, subject, policy, 0, STUDY_BATCH);
    uint64_t bytes[STUDY_MAX_LIST];
    dunlin_batch_fit fits[STUDY_MAX_LIST];
    uint64_t least_bytes = 0;
    dunlin_error error = {0};
    options.max_ratio = max_ratio;
    for (int32_t i = 0; i < n; i++) {
        bytes[i] = study_bytes(&budgets[i], subject);
    }
    const double begin_ms = clock_ms();
    if (dunlin_trainer_price_batches(subject->model, &options, bytes, n, fits, &least_bytes,
                                     &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return;
    }
    const double ms = clock_ms() - begin_ms;
    for (int32_t i = 0; i < n; i++) {
        const found_batch found = {
            .budget_bytes = bytes[i],
            .least_bytes = least_bytes,
            .price = &fits[i].capped,
            .max_ratio = max_ratio,
            .plan_ms = ms,
        };
        add_row(at, subject, policy, &found);
    }
}

static void offer_job(study *at, const char *model, dunlin_policy policy, double max_ratio,
                      const study_budget *budgets, int32_t n)
{
    char note[96];
    char limit[24] = "";
    const int32_t image = study_image(at, model, 64, 224);
    json_t *texts = json_array();
    for (int32_t b = 0; b < n; b++) {
        (void)json_array_append_new(texts, json_string(budgets[b].text));
    }
    if (!isinf(max_ratio)) {
        (void)snprintf(limit, sizeof limit, " within %g x", max_ratio);
    }
    json_t *inputs = json_pack("{s:s, s:i, s:s, s:s, s:o}", "model", model, "image", (int)image,
                               "policy", policy_name(policy), "max_ratio", limit, "budgets", texts);
    const int64_t units = study_weight(model) * (isfinite(max_ratio)            ? 40
                                                 : policy == DUNLIN_POLICY_AUTO ? 10
                                                                                : 2);
    (void)snprintf(note, sizeof note, "max-batch %s %s%s", model, policy_name(policy), limit);
    if (study_begin_job(at, inputs, units, note)) {
        const study_subject *subject = study_open_subject(at, model, image, 0, 0);
        if (subject != NULL) {
            do_job(at, subject, policy, max_ratio, budgets, n);
        }
        study_end_job(at);
    }
}

/* What auto affords at these multiples of the fastest time per example. */
static const double ratios[] = {1.3, 1.1, 2.0};
#define QUICK_WEIGHT 40 /* of study_weight() */
#define N_RATIOS (sizeof ratios / sizeof ratios[0])

/* They take many plans each: they come after everything else, and with --quick for networks that
 * are planned in seconds. */
static void offer_ratios(study *at, const char *model, const study_budget *budgets, int32_t n)
{
    const bool is_quick = study_flags_of(at)->is_quick;
    for (size_t r = 0; r < (is_quick ? 1 : N_RATIOS); r++) {
        if (!is_quick || study_weight(model) <= QUICK_WEIGHT) {
            offer_job(at, model, DUNLIN_POLICY_AUTO, ratios[r], budgets, n);
        }
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
            offer_job(at, models[m], policies[p], (double)INFINITY, budgets, n_budgets);
        }
    }
    for (int32_t m = 0; m < n_models; m++) {
        for (int32_t p = 0; p < n_policies; p++) {
            if (policies[p] == DUNLIN_POLICY_AUTO) {
                offer_ratios(at, models[m], budgets, n_budgets);
            }
        }
    }
    return EXIT_OK;
}

const study_kind study_max_batch = {
    .name = "max-batch",
    .title = "The largest batch within a budget",
    .question = "How many examples fit into one optimiser step within a byte budget, and what does "
                "each of them then take?",
    .method = "Found by planning alone, for budgets that are shares of what the ideal step of "
              "batch 32 takes (nothing recomputed, memory shared by lifetime). \"Any\": slices of "
              "the step make every batch fit. The price is what an example takes, over what it "
              "takes in the ideal step of 32; of \"any\" it is that of a step of 2^30. Examples a "
              "second are predicted. \"auto within 1.3 x\": the largest batch whose examples take "
              "at most 1.3 times as long as at the fastest batch in that budget.",
    .columns = columns,
    .run_fn = run,
};
