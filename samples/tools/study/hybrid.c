/*
 * hybrid.c - gradient accumulation and gradient checkpointing, each alone, both together, and as
 * the planner mixes them, in several budgets (Sage's design).
 *
 * Invariant: with batch norm a step in slices of its own has ghost statistics, and its row says so
 * (`is_ghost`); a row without has the weights of the exact step.
 */
#include "named.h"
#include "study.h"

#include <dunlin/trainer_advanced.h>

#include <inttypes.h>
#include <stdio.h>

#define N_EXAMPLES 64
#define MOST_PIECES 8

static const char *const columns[] = {"model",
                                      "image",
                                      "batch",
                                      "budget_share",
                                      "budget_bytes",
                                      "technique",
                                      "policy",
                                      "statistics",
                                      "slice_asked",
                                      "fits",
                                      "needed_bytes",
                                      "planned_bytes",
                                      "none_bytes",
                                      "state_bytes",
                                      "predicted_ms",
                                      "ideal_ms",
                                      "predicted_samples_per_s",
                                      "redo_share",
                                      "micro_batch",
                                      "n_slices",
                                      "n_regions",
                                      "is_ghost",
                                      "weights_hash",
                                      "operand_bytes",
                                      "energy_step_j",
                                      "time_step_ms",
                                      STUDY_TIMES,
                                      NULL};

/* One way to run the step. */
typedef struct hybrid_way {
    const char *technique;
    dunlin_policy policy;
    int64_t slice; /* examples; 0: the policy's own choice */
    bool is_ghost; /* asked for */
} hybrid_way;

/* What a network's rows are measured against: its step with nothing shared, and what stays whatever
 * the plan. */
typedef struct hybrid_base {
    uint64_t none_bytes, state_bytes;
} hybrid_base;

static bool find_base(study *at, const study_subject *subject, int64_t batch, hybrid_base *out)
{
    dunlin_error error = {0};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    const dunlin_trainer_options options = study_options(at, subject, DUNLIN_POLICY_NONE, 0, batch);
    if (dunlin_trainer_estimate(subject->model, &options, &report, &error) != DUNLIN_OK) {
        study_fail_with(at, subject->name, &error);
        return false;
    }
    out->none_bytes = report.planned_bytes;
    out->state_bytes =
        report.by_class.weights + report.by_class.statistics + report.by_class.optimizer;
    return true;
}

static const char *technique_of(dunlin_policy policy, int64_t slice, bool is_ghost)
{
    if (policy == DUNLIN_POLICY_POOL) {
        return "neither";
    }
    if (policy == DUNLIN_POLICY_MICROBATCH) {
        return "accumulation";
    }
    if (policy == DUNLIN_POLICY_SGC) {
        return slice == 0 ? "checkpointing" : "both";
    }
    return policy == DUNLIN_POLICY_AUTO && is_ghost ? "ghost auto" : policy_name(policy);
}

/* Each slice is the one before it divided by this. */
static int64_t slice_step(const study *at)
{
    return study_flags_of(at)->is_quick ? 4 : 2;
}

/* The ways of a policy: whole batches, or slices of a half, a quarter, ... of the batch; with
 * segments of checkpointing they go where batch norm takes their statistics. */
static int32_t list_ways(const study *at, const study_subject *subject, dunlin_policy policy,
                         int64_t batch, hybrid_way out[MOST_PIECES])
{
    const bool has_norm = study_has_batch_norm(subject);
    const bool is_sliced =
        policy == DUNLIN_POLICY_MICROBATCH || (policy == DUNLIN_POLICY_SGC && has_norm);
    int32_t n = 0;
    if (policy != DUNLIN_POLICY_MICROBATCH) {
        const bool is_ghost = policy == DUNLIN_POLICY_SAGE && has_norm;
        out[n++] = (hybrid_way){technique_of(policy, 0, is_ghost), policy, 0, is_ghost};
    }
    if (policy == DUNLIN_POLICY_AUTO && has_norm) {
        out[n++] = (hybrid_way){technique_of(policy, 0, true), policy, 0, true};
    }
    const int64_t step = slice_step(at);
    for (int64_t slice = batch / step; is_sliced && slice >= 1 && n < MOST_PIECES; slice /= step) {
        out[n++] = (hybrid_way){technique_of(policy, slice, true), policy, slice, true};
    }
    return n;
}

static void add_row(study *at, const study_subject *subject, uint64_t bytes, int64_t batch,
                    const hybrid_way *way, const hybrid_base *base, const study_steps *steps)
{
    const dunlin_trainer_report *report = &steps->report;
    json_t *row = json_object();
    row_set_text(row, "model", study_model_name(subject->name));
    row_set_int(row, "image", study_image_side(subject));
    row_set_int(row, "batch", batch);
    row_set_real(row, "budget_share", (double)bytes / (double)subject->ideal_bytes);
    row_set_int(row, "budget_bytes", (int64_t)bytes);
    row_set_text(row, "technique", way->technique);
    row_set_text(row, "policy", policy_name(way->policy));
    row_set_text(row, "statistics",
                 !study_has_batch_norm(subject) ? "none" : (way->is_ghost ? "ghost" : "exact"));
    row_set_int(row, "slice_asked", way->slice);
    row_set_int(row, "fits", steps->is_fitting ? 1 : 0);
    row_set_int(row, "needed_bytes",
                (int64_t)(steps->is_fitting ? report->least_budget_bytes : steps->needed_bytes));
    row_set_int(row, "none_bytes", (int64_t)base->none_bytes);
    row_set_int(row, "state_bytes", (int64_t)base->state_bytes);
    if (steps->is_fitting) {
        row_set_int(row, "planned_bytes", (int64_t)report->planned_bytes);
        row_set_real(row, "predicted_ms", report->predicted_ms);
        row_set_real(row, "ideal_ms", report->ideal_ms);
        row_set_real(row, "predicted_samples_per_s", 1e3 * (double)batch / report->predicted_ms);
        row_set_real(row, "redo_share", report->recompute_ms / report->predicted_ms);
        row_set_int(row, "micro_batch", report->micro_batch);
        row_set_int(row, "n_slices", report->n_slices);
        row_set_int(row, "n_regions", report->n_regions);
        row_set_int(row, "is_ghost", report->is_ghost ? 1 : 0);
        study_set_times(row, steps);
    }
    if (steps->n_timed > 0) {
        char hash[24];
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, steps->hash);
        row_set_text(row, "weights_hash", hash);
        row_set_int(row, "operand_bytes", (int64_t)steps->operand_bytes);
        row_set_real(row, "energy_step_j", steps->energy_j);
    }
    study_add_row(at, row);
}

/* One network, batch and policy. */
typedef struct hybrid_case {
    const char *model;
    int32_t image;
    int64_t batch;
    dunlin_policy policy;
    const study_budget *budgets;
    int32_t n_budgets;
} hybrid_case;

static void do_job(study *at, const hybrid_case *what)
{
    const study_flags *flags = study_flags_of(at);
    const study_subject *subject = study_open_subject(at, what->model, what->image, 0, 0);
    hybrid_base base = {0};
    hybrid_way ways[MOST_PIECES];
    if (subject == NULL || !find_base(at, subject, what->batch, &base)) {
        return;
    }
    dunlin_dataset *data = study_open_data(at, subject, NULL, DUNLIN_SPLIT_TRAIN, N_EXAMPLES);
    const int32_t n = list_ways(at, subject, what->policy, what->batch, ways);
    for (int32_t i = 0; data != NULL && i < n * what->n_budgets && !study_has_failed(at); i++) {
        const hybrid_way *way = &ways[i % n];
        const uint64_t bytes = study_bytes(&what->budgets[i / n], subject);
        dunlin_trainer_options options =
            study_options(at, subject, way->policy, bytes, what->batch);
        study_steps steps;
        options.micro_batch = way->slice;
        options.ghost_statistics = way->is_ghost;
        if (study_take_steps(at, subject, &options, data, flags->is_quick ? 0 : flags->steps,
                             &steps)) {
            add_row(at, subject, bytes, what->batch, way, &base, &steps);
        }
    }
    dunlin_dataset_close(data);
}

static void offer_job(study *at, const hybrid_case *what)
{
    char note[96];
    json_t *texts = json_array();
    for (int32_t b = 0; b < what->n_budgets; b++) {
        (void)json_array_append_new(texts, json_string(what->budgets[b].text));
    }
    json_t *inputs =
        json_pack("{s:s, s:i, s:I, s:s, s:o, s:b}", "model", what->model, "image", (int)what->image,
                  "batch", (json_int_t)what->batch, "policy", policy_name(what->policy), "budgets",
                  texts, "quick", study_flags_of(at)->is_quick);
    (void)snprintf(note, sizeof note, "hybrid %s %s, batch %" PRId64, study_model_name(what->model),
                   policy_name(what->policy), what->batch);
    if (study_begin_job(at, inputs, study_weight(what->model) * what->n_budgets, note)) {
        do_job(at, what);
        study_end_job(at);
    }
}

static int run(study *at)
{
    const bool is_quick = study_flags_of(at)->is_quick;
    const char *models[STUDY_MAX_LIST];
    study_budget budgets[STUDY_MAX_LIST];
    dunlin_policy policies[STUDY_MAX_LIST];
    int64_t batches[STUDY_MAX_LIST];
    const int32_t n_models =
        study_models(at, "mobilenet_v2,resnet50,densenet121,bert_small", models);
    const int32_t n_budgets =
        study_budgets(at, is_quick ? "100%,85%,70%,50%" : "100%,90%,80%,70%,60%,50%,40%", budgets);
    const int32_t n_policies = study_policies(at, "pool,microbatch,sgc,sage,auto", policies);
    const int32_t n_batches = study_batches(at, "32", batches);
    for (int32_t i = 0; i < n_models * n_batches * n_policies; i++) {
        const char *model = models[i / n_policies / n_batches];
        const hybrid_case what = {.model = model,
                                  .image = study_image(at, model, 64, 64),
                                  .batch = batches[i / n_policies % n_batches],
                                  .policy = policies[i % n_policies],
                                  .budgets = budgets,
                                  .n_budgets = n_budgets};
        if (what.policy == DUNLIN_POLICY_MICROBATCH && what.batch < slice_step(at)) {
            study_tell_filter(at, "--batches %" PRId64 ": no batch has smaller slices", what.batch);
        } else {
            offer_job(at, &what);
        }
    }
    return EXIT_OK;
}

const study_kind study_hybrid = {
    .name = "hybrid",
    .title = "Micro-batches and checkpointing, alone and together",
    .question = "In a budget, is a step faster in slices, with recomputed tensors, or with both?",
    .method =
        "\"neither\" shares memory by lifetime alone; \"accumulation\" runs the batch in slices "
        "of a half, a quarter, ... of it; \"checkpointing\" recomputes tensors, in segments (as "
        "Sage compares with); \"both\" does so within such slices; \"sage\" chooses slices and "
        "tensors by the budget, as Sage describes; \"auto\" is Dunlin's search. With batch norm, "
        "slices of a step have ghost statistics and other weights than the exact step, except "
        "those of auto, which stays exact; \"ghost auto\" may use them, too. \"none_bytes\" is "
        "the step with nothing shared, \"state_bytes\" what no plan makes smaller: weights, "
        "statistics and the optimiser's state. With --quick no step is taken.",
    .columns = columns,
    .run_fn = run,
};
