/*
 * task_dp.c - the key `dp` of a task file: rounds with noise, and what they may cost.
 *
 * Invariant: a task that passes has noise whose cost over all of its rounds is known, and nothing
 * beside it that gives numbers of devices away without noise.
 */
#include "privacy/terms.h"
#include "task_json.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CLIP_LEAST 1e-6
#define CLIP_MOST 1e6
#define MOST_POPULATION 9007199254740992.0 /* 2^53 */
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define ROW(key, member, kind, least, most, fallback)                                              \
    {                                                                                              \
        key, offsetof(dunlin__server_task, dp.question.member), kind, least, most, fallback        \
    }

static const dunlin__task_field dp_fields[] = {
    ROW("clip", clip, DUNLIN_TASK_REAL, 0, 1e30, -1),
    ROW("noise", noise, DUNLIN_TASK_REAL, 0, 1e30, 0),
    ROW("epsilon", epsilon, DUNLIN_TASK_REAL, 0, 1e30, 0),
    ROW("delta", delta, DUNLIN_TASK_REAL, 0, 1e30, -1),
    ROW("most", most_rounds, DUNLIN_TASK_U64, 0, DUNLIN_SERVER_ROUNDS, 0),
    ROW("separation", separation, DUNLIN_TASK_U64, 0, DUNLIN_SERVER_ROUNDS, 0),
    ROW("population", population, DUNLIN_TASK_U64, 0, MOST_POPULATION, 0),
    {"noise_cohort", offsetof(dunlin__server_task, dp.noise_cohort), DUNLIN_TASK_U32, 0, 1e9, 0},
};
static const char *const dp_names[] = {"sampling", "mechanism", "noise_by", "noise_kind",
                                       "accountant"};

static dunlin_status refuse(const dunlin__task_place *at, const char *why)
{
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: %s", at->file, why);
}

/* Whose noise it is, and of what distribution. */
static dunlin_status read_noise_kinds(const dunlin__task_place *at, const json_t *dp,
                                      dunlin__server_task *task)
{
    char noise_by[16] = "";
    char noise_kind[16] = "";
    DUNLIN_TRY(dunlin__task_read_text(at, dp, "noise_by", false, noise_by, sizeof noise_by));
    DUNLIN_TRY(dunlin__task_read_text(at, dp, "noise_kind", false, noise_kind, sizeof noise_kind));
    if (strcmp(noise_by, "device") == 0) {
        return dunlin__fail(at->error, DUNLIN_UNSUPPORTED, "task", 0,
                            "%.80s: dp.noise_by device: local noise is not supported: use server "
                            "or distributed",
                            at->file);
    }
    task->dp.is_distributed =
        strcmp(noise_by, "distributed") == 0 || strcmp(noise_by, "cohort") == 0;
    if (noise_by[0] != 0 && !task->dp.is_distributed && strcmp(noise_by, "server") != 0) {
        return refuse(at, "dp.noise_by must be server or distributed");
    }
    task->dp.is_skellam = strcmp(noise_kind, "skellam") == 0;
    return noise_kind[0] == 0 || task->dp.is_skellam || strcmp(noise_kind, "gaussian") == 0
               ? DUNLIN_OK
               : refuse(at, "dp.noise_kind must be gaussian or skellam");
}

/* What reckons the cost; rdp where nothing is said. */
static dunlin_status read_accountant(const dunlin__task_place *at, const json_t *dp,
                                     dunlin__server_task *task)
{
    char accountant[16] = "";
    DUNLIN_TRY(dunlin__task_read_text(at, dp, "accountant", false, accountant, sizeof accountant));
    const bool is_pld = strcmp(accountant, "pld") == 0;
    task->dp.question.accountant = is_pld ? DUNLIN_ACCOUNTANT_PLD : DUNLIN_ACCOUNTANT_CHOSEN;
    return is_pld || accountant[0] == 0 || strcmp(accountant, "rdp") == 0
               ? DUNLIN_OK
               : refuse(at, "dp.accountant must be rdp or pld");
}

/* How devices come into rounds, and how the noise of rounds hangs together. */
static dunlin_status read_kinds(const dunlin__task_place *at, const json_t *dp,
                                dunlin__server_task *task)
{
    char sampling[16] = "";
    char mechanism[16] = "";
    dunlin__privacy_question *question = &task->dp.question;
    DUNLIN_TRY(dunlin__task_read_text(at, dp, "sampling", false, sampling, sizeof sampling));
    DUNLIN_TRY(dunlin__task_read_text(at, dp, "mechanism", false, mechanism, sizeof mechanism));
    const bool is_tree = strcmp(mechanism, "tree") == 0;
    const bool is_poisson = strcmp(sampling, "poisson") == 0;
    const bool is_fixed = strcmp(sampling, "fixed") == 0;
    if (mechanism[0] != 0 && !is_tree && strcmp(mechanism, "gaussian") != 0) {
        return refuse(at, "dp.mechanism must be gaussian or tree");
    }
    if (sampling[0] != 0 && !is_poisson && !is_fixed && strcmp(sampling, "arrival") != 0) {
        return refuse(at, "dp.sampling must be poisson, fixed or arrival");
    }
    if (is_tree && (is_poisson || is_fixed)) {
        return refuse(at, "dp.mechanism tree goes with dp.sampling arrival: a tree has no gain of "
                          "cohorts that are drawn");
    }
    if (is_tree) {
        question->sampling = DUNLIN_SAMPLING_TREE;
    } else if (is_poisson) {
        question->sampling = DUNLIN_SAMPLING_POISSON;
    } else if (is_fixed) {
        question->sampling = DUNLIN_SAMPLING_FIXED;
    }
    return DUNLIN_OK;
}

/* What would give away numbers of devices, or make the cost another one than is counted. */
static const char *find_conflict(const dunlin__server_task *task, const json_t *root)
{
    const dunlin__privacy_question *question = &task->dp.question;
    const bool is_drawn = question->sampling == DUNLIN_SAMPLING_POISSON ||
                          question->sampling == DUNLIN_SAMPLING_FIXED;
    if (json_object_get(json_object_get(root, "plan"), "clip_norm") != NULL) {
        return "plan.clip_norm does not go with dp, whose clip is the bound";
    }
    if (task->plan.clip_quantile > 0) {
        return "plan.clip_quantile does not go with dp: its bits would have no noise";
    }
    if (task->evaluate_every > 0 || task->plan.evaluates) {
        return "evaluate_every and plan.evaluate do not go with dp: their numbers would have no "
               "noise";
    }
    if (task->metrics_per_device) {
        return "metrics_per_device does not go with dp: its numbers would have no noise";
    }
    if (task->min_reports > 1) {
        return "min_reports does not go with dp: whether a round failed would tell who was there";
    }
    if (task->plan.orders.parameters.trained != DUNLIN_V1_TRAINED_ALL ||
        task->plan.orders.parameters.trained_prefixes[0] != 0 ||
        task->plan.orders.parameters.frozen_prefixes[0] != 0) {
        return "plan.trained and plan.frozen do not go with dp: what stays would get noise, too";
    }
    if (is_drawn && task->n_clients == 0) {
        return "dp.sampling poisson and fixed want clients, how many there are";
    }
    if (is_drawn && task->over_select > 1) {
        return "over_select does not go with dp.sampling poisson and fixed: who is drawn counts";
    }
    if (question->sampling == DUNLIN_SAMPLING_TREE && task->rollback > 0) {
        return "rollback does not go with dp.mechanism tree: noise of rounds taken back would stay";
    }
    return NULL;
}

static dunlin_status check_numbers(const dunlin__task_place *at, const json_t *dp,
                                   const dunlin__server_task *task)
{
    const dunlin__privacy_question *question = &task->dp.question;
    if (json_object_get(dp, "noise") == NULL && json_object_get(dp, "epsilon") == NULL) {
        return refuse(at, "dp.noise or dp.epsilon must be there");
    }
    if (json_object_get(dp, "noise") != NULL && json_object_get(dp, "epsilon") != NULL) {
        return refuse(at, "dp.noise and dp.epsilon: one follows from the other, give one");
    }
    if (!(question->clip >= CLIP_LEAST && question->clip <= CLIP_MOST)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: dp.clip is %g, where it has to be from %g to %g", at->file,
                            question->clip, CLIP_LEAST, CLIP_MOST);
    }
    if (json_object_get(dp, "epsilon") != NULL && !(question->epsilon > 0)) {
        return refuse(at, "dp.epsilon is 0, where it has to be above 0");
    }
    if (task->n_clients > 0 && json_object_get(dp, "population") != NULL &&
        task->dp.noise_cohort == 0) {
        return refuse(at, "dp.population goes without clients, which says how many there are");
    }
    if (question->population == 0) {
        return refuse(at, "dp.population or clients must be there: delta is held against it");
    }
    if (task->n_clients > 0 && question->separation > 1 &&
        question->separation * task->cohort > task->n_clients) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: dp.separation %" PRIu64 " times cohort %" PRIu32
                            " is more than clients %" PRIu32 ": rounds would lack devices",
                            at->file, question->separation, task->cohort, task->n_clients);
    }
    return DUNLIN_OK;
}

/* A simulated noise cohort (pfl-research, Granqvist et al. 2024): few devices train, with the noise
 * and the cost that a larger cohort of a larger population would have. */
static dunlin_status take_noise_cohort(const dunlin__task_place *at, dunlin__server_task *task,
                                       uint64_t population)
{
    dunlin__privacy_question *question = &task->dp.question;
    const uint32_t n = task->dp.noise_cohort;
    if (n == 0) {
        return DUNLIN_OK;
    }
    if (question->sampling != DUNLIN_SAMPLING_POISSON || n < task->cohort || population < n) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: dp.noise_cohort %" PRIu32
                            " wants dp.sampling poisson, cohort %" PRIu32
                            " or more, and a dp.population of as many or more (%" PRIu64 ")",
                            at->file, n, task->cohort, population);
    }
    question->population = population;
    question->rate = (double)n / (double)population;
    return DUNLIN_OK;
}

dunlin_status dunlin__task_read_dp(const dunlin__task_place *at, const json_t *root,
                                   const dunlin_alloc *alloc, dunlin__server_task *task)
{
    const json_t *dp = json_object_get(root, "dp");
    dunlin__privacy_question *question = &task->dp.question;
    dunlin_error why = {0};
    if (dp == NULL) {
        return DUNLIN_OK;
    }
    const dunlin__task_object object = {"dp", dp_fields, N_OF(dp_fields), dp_names, N_OF(dp_names)};
    *question = dunlin__privacy_ask();
    DUNLIN_TRY(dunlin__task_read_object(at, root, &object, task));
    DUNLIN_TRY(read_noise_kinds(at, dp, task));
    DUNLIN_TRY(read_kinds(at, dp, task));
    DUNLIN_TRY(read_accountant(at, dp, task));
    const char *conflict = dunlin__task_noise_conflict(task, root);
    conflict = conflict != NULL ? conflict : find_conflict(task, root);
    if (conflict != NULL) {
        return refuse(at, conflict);
    }
    task->dp.is_on = true;
    task->dp.epsilon = question->epsilon;
    question->is_discrete = true;
    question->n_rounds = task->rounds;
    const uint64_t population = question->population;
    question->population = task->n_clients > 0 ? task->n_clients : population;
    if (question->sampling == DUNLIN_SAMPLING_POISSON) {
        question->rate = (double)task->cohort / (double)task->n_clients;
    } else if (question->sampling == DUNLIN_SAMPLING_FIXED) {
        question->cohort = task->cohort;
    }
    DUNLIN_TRY(take_noise_cohort(at, task, population));
    DUNLIN_TRY(check_numbers(at, dp, task));
    if (dunlin__privacy_account(question, alloc, &task->dp.cost, &why) != DUNLIN_OK) {
        return dunlin__fail(at->error, why.status == DUNLIN_MEMORY ? DUNLIN_MEMORY : DUNLIN_DATA,
                            "task", 0, "%.80s: dp: %s", at->file, why.text);
    }
    question->noise = task->dp.cost.noise;
    question->epsilon = 0;
    task->plan.clip_norm = (double)(float)question->clip;
    question->clip = task->plan.clip_norm;
    if (task->policy.min_separation_rounds < question->separation) {
        task->policy.min_separation_rounds = (uint32_t)question->separation;
    }
    return DUNLIN_OK;
}
