/*
 * fleets_grid.c - the lists of the flags over fleets: partitions, policies in budgets with batches,
 * rates tuned on a validation split.
 */
#include "fleets.h"

#include <inttypes.h>
#include <string.h>

#define CLIENTS 10
#define ROUNDS 40
#define QUICK_ROUNDS 6

static const char *const partitions[] = {"iid", "dirichlet:0.3", "writers"};
#define N_PARTITIONS 3

static json_t *inputs_of(const study *at, const fleet_case *what)
{
    const study_flags *flags = study_flags_of(at);
    const fleet_extent *size = &what->size;
    char held_out[STUDY_VALIDATION_BYTES] = "";
    if (what->has_held_out) {
        study_validation_text(&what->held_out, held_out);
    }
    json_t *inputs = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:b, s:I, s:s, s:I, s:f, s:s, s:b}", "model",
        what->model, "dataset", what->dataset, "partition", what->partition, "algorithm",
        what->algorithm, "rule", what->rule, "batch", (json_int_t)what->variant->batch, "run",
        (json_int_t)what->seed, "target", flags->target, "quick", flags->is_quick, "budget",
        (json_int_t)what->variant->budget_bytes, "policy", policy_name(what->variant->policy),
        "ghost", (json_int_t)what->variant->ghost, "lr", what->rate.lr, "rate_rule",
        what->rate.rule, "tuning", what->is_tuning);
    json_t *more =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:f, s:f, s:s, s:b}", "clients",
                  (json_int_t)size->n_clients, "cohort", (json_int_t)size->cohort, "rounds",
                  (json_int_t)size->rounds, "epochs", (json_int_t)size->epochs, "most",
                  (json_int_t)size->n_examples, "held_out", held_out, "schedule",
                  flags->schedule == NULL ? "" : flags->schedule, "warmup", flags->warmup_percent,
                  "decay", flags->weight_decay, "augment",
                  flags->augment == NULL ? "" : flags->augment, "drops", what->drops_last);
    (void)json_object_update(inputs, more);
    json_decref(more);
    return inputs;
}

void fleets_offer(study *at, const fleet_case *what)
{
    const study_flags *flags = study_flags_of(at);
    char note[256];
    (void)snprintf(note, sizeof note, "federated %s, %s, %s, %s, rate %g, seed %" PRIu64,
                   what->dataset, what->partition, what->algorithm, what->rule, what->rate.lr,
                   what->seed);
    if (study_begin_job(at, inputs_of(at, what), flags->is_quick ? 100 : 500, note)) {
        fleets_run(at, what);
        study_end_job(at);
    }
}

static void offer_tuning(study *at, const fleet_case *like, const char *group)
{
    const study_flags *flags = study_flags_of(at);
    for (int32_t r = 0; grid_is_tuned(flags) && r < flags->n_rates; r++) {
        fleet_case what = *like;
        what.is_tuning = true;
        what.group = group;
        what.seed = flags->seed;
        what.rate = (grid_rate){.lr = flags->rate_list[r], .rule = "tuning"};
        fleets_offer(at, &what);
    }
}

static void offer_runs(study *at, const fleet_case *like)
{
    const study_flags *flags = study_flags_of(at);
    char group[256];
    grid_rate rates[2];
    (void)snprintf(group, sizeof group, "%s, %s, %s, %s, batch %" PRId64 ", ghost %" PRId64,
                   study_model_name(like->model), like->dataset, like->partition, like->algorithm,
                   like->variant->batch, like->variant->ghost);
    if (like->variant->batch > 0) {
        offer_tuning(at, like, group);
    }
    int32_t n = grid_rates(at, group, fleets_rule(like->variant->batch), rates);
    if (like->variant->batch == 0) {
        rates[0] = (grid_rate){.rule = "none"};
        n = 1;
    }
    for (int32_t i = 0; i < n; i++) {
        for (int64_t s = 0; s < flags->n_seeds; s++) {
            fleet_case what = *like;
            what.seed = grid_first_seed(flags) + (uint64_t)s;
            what.rate = rates[i];
            if (n > 1 && i == 0) {
                (void)snprintf(what.rule + strlen(what.rule), sizeof what.rule - strlen(what.rule),
                               ", rate by the rule");
            }
            fleets_offer(at, &what);
        }
    }
}

static int64_t or_else(int64_t given, int64_t own)
{
    return given > 0 ? given : own;
}

/* The shape of the data set, and how many it has to train and to test on; false: failed. */
static bool look_at_data(study *at, const char *model, const char *dataset, fleet_extent *size,
                         fleet_case *what, const study_subject **out_subject)
{
    const study_flags *flags = study_flags_of(at);
    const data_choice choice = {.name = dataset, .folder = flags->folder};
    const int32_t own_image = study_data_image(flags);
    dunlin_zoo_options options = {.image = flags->image != 0 ? (int32_t)flags->image : own_image};
    data_fill_zoo(flags->dataset != NULL ? &flags->choice : &choice, model, &options);
    if (flags->dataset == NULL && options.image == 0) {
        options.image = strncmp(dataset, "cifar", 5) == 0 ? 32 : 28;
    }
    if (options.classes == 0) {
        options.classes =
            flags->dataset != NULL && flags->own.has_shape ? flags->own.n_classes : 10;
    }
    const study_subject *subject =
        study_open_subject(at, model, options.image, options.channels, options.classes);
    if (subject == NULL) {
        return false;
    }
    const bool is_larger = subject->side > options.image && options.image > 1;
    what->image = flags->image != 0 || is_larger ? subject->side : 0;
    const dunlin_validation *held_out = what->has_held_out ? &what->held_out : NULL;
    dunlin_dataset *train =
        study_open_split(at, subject, dataset, DUNLIN_SPLIT_TRAIN, flags->max_examples, held_out);
    dunlin_dataset *test =
        train == NULL ? NULL : study_open_split(at, subject, dataset, DUNLIN_SPLIT_TEST, 0, NULL);
    if (test != NULL && held_out != NULL) {
        dunlin_dataset *held = study_open_split(at, subject, dataset, DUNLIN_SPLIT_VALIDATION,
                                                flags->max_examples, held_out);
        what->n_held = held == NULL ? 0 : dunlin_dataset_n_examples(held);
        dunlin_dataset_close(held);
    }
    if (test != NULL) {
        size->n_examples = dunlin_dataset_n_examples(train);
        what->n_test = dunlin_dataset_n_examples(test);
        what->is_made = dunlin_dataset_is_synthetic(train);
        (void)snprintf(what->title, sizeof what->title, "%s", dunlin_dataset_title(train));
        *out_subject = subject;
    }
    dunlin_dataset_close(test);
    dunlin_dataset_close(train);
    return test != NULL;
}

static bool has_writers(const study_flags *flags, const char *dataset)
{
    return study_validation(flags, dataset).by_client;
}

void fleets_offer_grid(study *at, const char *model)
{
    const study_flags *flags = study_flags_of(at);
    const char *dataset = study_default_dataset(flags, model);
    const study_subject *subject = NULL;
    if (flags->dataset == NULL && strncmp(model, "bert_", 5) == 0) {
        dataset = flags->folder == NULL ? "made_roles" : "shakespeare_roles"; /* these have users */
    }
    if (dataset == NULL) {
        study_tell_no_data(at, model);
        return;
    }
    grid_variant variants[GRID_MOST];
    fleet_case what = {.model = model, .dataset = dataset, .algorithm = "fedavg"};
    fleet_extent size = {.rounds = or_else(flags->rounds, flags->is_quick ? QUICK_ROUNDS : ROUNDS),
                         .epochs = or_else(flags->epochs, 1),
                         .n_clients = or_else(flags->n_clients, CLIENTS)};
    what.held_out = study_validation(flags, dataset);
    what.has_held_out = flags->validation != NULL || grid_is_tuned(flags);
    if (!look_at_data(at, model, dataset, &size, &what, &subject)) {
        return;
    }
    const int64_t n_train = size.n_examples;
    size.cohort = or_else(flags->cohort, size.n_clients);
    size.n_examples = or_else(flags->max_examples, INT32_MAX);
    what.size = size;
    what.drops_last = study_has_batch_norm(subject);
    const grid_lists lists = {
        .policies = "none,auto", .budgets = "100%", .n_train = n_train / size.n_clients};
    const int32_t n = grid_variants(at, subject, &lists, variants);
    const int32_t n_partitions = flags->n_partitions > 0 ? flags->n_partitions : N_PARTITIONS;
    for (int32_t p = 0; p < n_partitions; p++) {
        what.partition = flags->n_partitions > 0 ? flags->partition_list[p] : partitions[p];
        if (strcmp(what.partition, "writers") == 0 && !has_writers(flags, dataset)) {
            study_tell_filter(at, "--partition writers: %s does not say who its examples come from",
                              dataset);
            continue;
        }
        for (int32_t v = 0; v < n; v++) {
            what.variant = &variants[v];
            memcpy(what.rule, variants[v].label, sizeof variants[v].label);
            offer_runs(at, &what);
        }
    }
}
