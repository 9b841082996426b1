/*
 * task.c - reads the task file.
 *
 * Invariant: every key is a row of a table with its kind, range and default, so what is accepted
 * can be read here in one place, and nothing is silently ignored.
 */
#include "task.h"

#include "base/files.h"
#include "compress.h"
#include "task_json.h"
#include "together.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

#define TASK_FILE_BYTES (4u * 1024 * 1024)

#define TASK(key, member, kind, least, most, fallback)                                             \
    {                                                                                              \
        key, offsetof(dunlin__server_task, member), kind, least, most, fallback                    \
    }
#define REQUIRED (-1.0)
#define LEAST_REAL 1e-30             /* that is not 0 in a plan, whose numbers are float32 */
#define LEAST_PACKED_CLIP 1e-9       /* devices can hold a packed update to no less */
#define LARGE 9007199254740992.0     /* 2^53: whole numbers of JSON are exact up to here */
#define MAX_EXAMPLES 1099511627776.0 /* 2^40, as the protocol has it */
/* What a device says it has cannot be checked: with so many, one that lies counts for some tens of
 * honest ones, not for millions. */
#define WEIGHT_CAP 10000.0

static const dunlin__task_field task_fields[] = {
    TASK("classes", classes, DUNLIN_TASK_U32, 0, 1e6, 0),
    TASK("image", image, DUNLIN_TASK_U32, 0, 4096, 0),
    TASK("channels", channels, DUNLIN_TASK_U32, 0, 64, 0),
    TASK("sequence", sequence, DUNLIN_TASK_U32, 0, 65536, 0),
    TASK("vocabulary", vocabulary, DUNLIN_TASK_U32, 0, 1e6, 0),
    TASK("rounds", rounds, DUNLIN_TASK_U64, 1, DUNLIN_SERVER_ROUNDS, REQUIRED),
    TASK("evaluate_every", evaluate_every, DUNLIN_TASK_U64, 0, DUNLIN_SERVER_ROUNDS, 0),
    TASK("cohort", cohort, DUNLIN_TASK_U32, 1, DUNLIN_SERVER_COHORT, REQUIRED),
    TASK("over_select", over_select, DUNLIN_TASK_REAL, 1, 100, 1),
    TASK("clients", n_clients, DUNLIN_TASK_U32, 0, DUNLIN_SERVER_CLIENTS, 0),
    TASK("min_clients_for_start", min_clients_for_start, DUNLIN_TASK_U32, 0, DUNLIN_SERVER_CLIENTS,
         0),
    TASK("min_reports", min_reports, DUNLIN_TASK_U32, 1, DUNLIN_SERVER_COHORT, 1),
    TASK("weight_cap", weight_cap, DUNLIN_TASK_U64, 1, MAX_EXAMPLES, WEIGHT_CAP),
    TASK("rollback", rollback, DUNLIN_TASK_REAL, 1e-6, 1, 0),
    TASK("judge_every", judge_every, DUNLIN_TASK_U64, 1, DUNLIN_SERVER_ROUNDS, 1),
    TASK("keep_every", keep_every, DUNLIN_TASK_U32, 0, DUNLIN_SERVER_ROUNDS, 0),
    TASK("keep_best", keeps_best, DUNLIN_TASK_BOOL, 0, 1, 1),
    TASK("target_accuracy", target_accuracy, DUNLIN_TASK_REAL, 1e-6, 1, 0),
    TASK("patience", patience, DUNLIN_TASK_U32, 1, DUNLIN_SERVER_ROUNDS, 0),
    TASK("min_delta", min_delta, DUNLIN_TASK_REAL, 0, 1, 0),
    TASK("metrics_per_device", metrics_per_device, DUNLIN_TASK_BOOL, 0, 1, 0),
    TASK("chunk_bytes", chunk_bytes, DUNLIN_TASK_U32, DUNLIN_WIRE_CHUNK_MIN_BYTES,
         DUNLIN_WIRE_CHUNK_MAX_BYTES, DUNLIN_WIRE_CHUNK_DEFAULT_BYTES),
    TASK("seed", seed, DUNLIN_TASK_U64, 0, LARGE, 0),
    TASK("test_examples", test_examples, DUNLIN_TASK_U64, 0, MAX_EXAMPLES, 0),
};

static const dunlin__task_field plan_fields[] = {
    TASK("epochs", plan.n_epochs, DUNLIN_TASK_U32, 1, 10000, 1),
    TASK("batch", plan.batch, DUNLIN_TASK_U32, 1, 65536, 32),
    TASK("max_steps", plan.max_steps, DUNLIN_TASK_U64, 0, MAX_EXAMPLES, 0),
    TASK("max_examples", plan.max_examples, DUNLIN_TASK_U64, 0, MAX_EXAMPLES, 0),
    TASK("lr", plan.lr, DUNLIN_TASK_REAL, 1e-12, 1000, 0.01),
    TASK("momentum", plan.momentum, DUNLIN_TASK_REAL, 0, 0.99999, 0),
    TASK("weight_decay", plan.weight_decay, DUNLIN_TASK_REAL, 0, 1, 0),
    TASK("proximal_mu", plan.proximal_mu, DUNLIN_TASK_REAL, 0, 1000, 0),
    TASK("lr_decay", plan.lr_decay, DUNLIN_TASK_REAL, 1e-6, 1, 1),
    TASK("clip_norm", plan.clip_norm, DUNLIN_TASK_REAL, 0, 1e6, 0),
    TASK("clip_layers", plan.clips_layers, DUNLIN_TASK_BOOL, 0, 1, 0),
    TASK("clip_quantile", plan.clip_quantile, DUNLIN_TASK_REAL, 0.01, 0.99, 0),
    TASK("clip_rate", plan.clip_rate, DUNLIN_TASK_REAL, 1e-6, 10, 0.2),
    TASK("evaluate", plan.evaluates, DUNLIN_TASK_BOOL, 0, 1, 0),
    TASK("partial", plan.partial, DUNLIN_TASK_REAL, 0, 0.99, 0),
    TASK("decay_norms", plan.orders.decays_norms, DUNLIN_TASK_BOOL, 0, 1, 1),
    TASK("warmup", plan.orders.warmup_steps, DUNLIN_TASK_U64, 0, MAX_EXAMPLES, 0),
    TASK("lr_period", plan.orders.period_steps, DUNLIN_TASK_U64, 0, MAX_EXAMPLES, 0),
    TASK("gamma", plan.orders.gamma, DUNLIN_TASK_REAL, 1e-9, 1, 0.1),
    TASK("min_lr", plan.orders.min_lr, DUNLIN_TASK_REAL, 0, 1000, 0),
    TASK("cutout", plan.orders.cutout, DUNLIN_TASK_U32, 0, 4096, 0),
    TASK("shift", plan.orders.shift, DUNLIN_TASK_U32, 0, 16777216, 0),
    TASK("mixup", plan.orders.mixup, DUNLIN_TASK_REAL, 0, 1000, 0),
    TASK("noise", plan.orders.noise, DUNLIN_TASK_REAL, 0, 1000, 0),
    TASK("flip", plan.orders.flips, DUNLIN_TASK_BOOL, 0, 1, 0),
    TASK("gradient_clip_norm", plan.orders.gradient_clip_norm, DUNLIN_TASK_REAL, 0, 1e30, 0),
    TASK("gradient_clip_value", plan.orders.gradient_clip_value, DUNLIN_TASK_REAL, 0, 1e30, 0),
};

static const dunlin__task_field policy_fields[] = {
    TASK("min_examples", policy.min_examples, DUNLIN_TASK_U64, 0, LARGE, 0),
    TASK("min_separation_ms", policy.min_separation_ms, DUNLIN_TASK_U64, 0, 3e10, 0),
    TASK("min_separation_rounds", policy.min_separation_rounds, DUNLIN_TASK_U32, 0, 1e6, 0),
    TASK("requires_charging", policy.requires_charging, DUNLIN_TASK_BOOL, 0, 1, 0),
    TASK("requires_unmetered", policy.requires_unmetered, DUNLIN_TASK_BOOL, 0, 1, 0),
    TASK("requires_idle", policy.requires_idle, DUNLIN_TASK_BOOL, 0, 1, 0),
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static dunlin_status read_names(const dunlin__task_place *at, const json_t *root,
                                dunlin__server_task *task)
{
    DUNLIN_TRY(dunlin__task_read_text(at, root, "population", true, task->population,
                                      sizeof task->population));
    DUNLIN_TRY(dunlin__task_read_text(at, root, "task", true, task->name, sizeof task->name));
    DUNLIN_TRY(dunlin__task_read_text(at, root, "model", false, task->model, sizeof task->model));
    DUNLIN_TRY(
        dunlin__task_read_text(at, root, "initial", false, task->initial, sizeof task->initial));
    DUNLIN_TRY(dunlin__task_read_text(at, root, "local", false, task->local, sizeof task->local));
    const char *wrong = NULL;
    if (!dunlin__id_is_valid(task->population)) {
        wrong = "population";
    } else if (!dunlin__id_is_valid(task->name)) {
        wrong = "task";
    }
    if (wrong != NULL) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %s must be 1 to %u of letters, digits and - _ . ~", at->file,
                            wrong, DUNLIN_WIRE_ID_CHARS);
    }
    return DUNLIN_OK;
}

static dunlin_status read_algorithm(const dunlin__task_place *at, const json_t *root,
                                    dunlin__server_task *task)
{
    char text[64] = "fedavg";
    if (json_object_get(root, "algorithm") != NULL) {
        DUNLIN_TRY(dunlin__task_read_text(at, root, "algorithm", true, text, sizeof text));
    }
    task->plan.is_scaffold = strcmp(text, "scaffold") == 0;
    if (strcmp(text, "fedavg") == 0 || task->plan.is_scaffold) {
        if (task->plan.proximal_mu > 0) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: plan.proximal_mu goes with algorithm fedprox:MU alone",
                                at->file);
        }
        return DUNLIN_OK;
    }
    json_error_t ignored;
    json_t *mu = strncmp(text, "fedprox:", 8) == 0
                     ? json_loads(text + 8, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &ignored)
                     : NULL;
    double value = json_is_number(mu) ? json_number_value(mu) : -1;
    json_decref(mu);
    if (!(value >= LEAST_REAL && value <= 1000) ||
        (task->plan.proximal_mu > 0 && task->plan.proximal_mu != value)) {
        return dunlin__fail(
            at->error, DUNLIN_DATA, "task", 0,
            "%.80s: algorithm %.40s: wants fedavg, fedprox:MU (MU from 1e-30 to 1000) "
            "or scaffold",
            at->file, text);
    }
    task->plan.proximal_mu = value;
    return DUNLIN_OK;
}

static dunlin_status read_form(const dunlin__task_place *at, const json_t *root,
                               dunlin__server_task *task)
{
    const bool is_in_integers = dunlin__server_orders_are_whole(&task->plan.orders);
    char text[16];
    (void)snprintf(text, sizeof text, "%s", is_in_integers ? "weights" : "delta");
    if (json_object_get(root, "update_form") != NULL) {
        DUNLIN_TRY(dunlin__task_read_text(at, root, "update_form", true, text, sizeof text));
    }
    task->sends_weights = strcmp(text, "weights") == 0;
    if (!task->sends_weights && strcmp(text, "delta") != 0) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: update_form %.12s: wants delta or weights", at->file, text);
    }
    return DUNLIN_OK;
}

/* The words of one direction; none: float32. */
static dunlin_status read_words(const dunlin__task_place *at, const json_t *root, const char *key,
                                char *out_text, size_t capacity)
{
    const json_t *object = json_object_get(root, "compress");
    const dunlin__task_place inside = {at->file, "compress.", at->error};
    (void)snprintf(out_text, capacity, "f32");
    return json_object_get(object, key) != NULL
               ? dunlin__task_read_text(&inside, object, key, true, out_text, capacity)
               : DUNLIN_OK;
}

/* How updates and models are compressed. */
static dunlin_status read_compress(const dunlin__task_place *at, const json_t *root,
                                   dunlin__server_task *task)
{
    static const char *const names[] = {"up", "down"};
    static const dunlin__task_field rows[] = {
        TASK("feedback", feedback_rounds, DUNLIN_TASK_U32, 0, DUNLIN_SERVER_ROUNDS, 0),
    };
    const dunlin__task_object what = {"compress", rows, N_OF(rows), names, N_OF(names)};
    char where[128];
    char text[64];
    DUNLIN_TRY(dunlin__task_read_object(at, root, &what, task));
    DUNLIN_TRY(read_words(at, root, "down", text, sizeof text));
    (void)snprintf(where, sizeof where, "%.60s: compress.down", at->file);
    DUNLIN_TRY(dunlin__compress_parse_down(text, where, &task->down, &task->is_down, at->error));
    DUNLIN_TRY(read_words(at, root, "up", text, sizeof text));
    (void)snprintf(where, sizeof where, "%.60s: compress.up", at->file);
    DUNLIN_TRY(dunlin__compress_parse(text, where, &task->up, &task->is_packed, at->error));
    if (task->feedback_rounds > 0 && task->up.selection == DUNLIN_V1_SELECTION_ALL) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: compress.feedback goes with topk or randk: the others lose "
                            "nothing on average",
                            at->file);
    }
    return DUNLIN_OK;
}

/* A bound that is 0 on the device is none there, but would be one here. */
static dunlin_status check_small(const dunlin__task_place *at, const dunlin__server_plan *plan)
{
    const struct {
        const char *key;
        double value;
    } reals[] = {{"clip_norm", plan->clip_norm}, {"proximal_mu", plan->proximal_mu}};
    for (size_t i = 0; i < N_OF(reals); i++) {
        if (reals[i].value > 0 && reals[i].value < LEAST_REAL) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: plan.%s must be 0, or at least %g", at->file, reals[i].key,
                                LEAST_REAL);
        }
    }
    return DUNLIN_OK;
}

/* The other keys of clipping are about clip_norm. */
static dunlin_status check_clip(const dunlin__task_place *at, const json_t *root,
                                const dunlin__server_plan *plan)
{
    const json_t *object = json_object_get(root, "plan");
    const char *wrong = NULL;
    if (plan->clips_layers && !(plan->clip_norm > 0)) {
        wrong = "plan.clip_layers goes with plan.clip_norm";
    } else if (plan->clip_quantile > 0 && !(plan->clip_norm > 0)) {
        wrong = "plan.clip_quantile goes with plan.clip_norm, the first bound";
    } else if (!(plan->clip_quantile > 0) && json_object_get(object, "clip_rate") != NULL) {
        wrong = "plan.clip_rate goes with plan.clip_quantile";
    }
    return wrong == NULL
               ? DUNLIN_OK
               : dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: %s", at->file, wrong);
}

static dunlin_status check_together(const dunlin__task_place *at, dunlin__server_task *task)
{
    DUNLIN_TRY(check_small(at, &task->plan));
    if (task->is_packed && task->plan.clip_norm > 0 && task->plan.clip_norm < LEAST_PACKED_CLIP) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: plan.clip_norm is %g; with compress.up it must be 0, or at "
                            "least %g",
                            at->file, task->plan.clip_norm, LEAST_PACKED_CLIP);
    }
    DUNLIN_TRY(dunlin__together_check(dunlin__together_traits(task), at->file, at->error));
    if (task->n_clients != 0 && task->cohort > task->n_clients) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: cohort %" PRIu32 " is more than clients %" PRIu32, at->file,
                            task->cohort, task->n_clients);
    }
    if (task->min_reports > task->cohort) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: min_reports %" PRIu32 " is more than cohort %" PRIu32, at->file,
                            task->min_reports, task->cohort);
    }
    if (task->n_clients != 0 && task->min_clients_for_start > task->n_clients) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: min_clients_for_start %" PRIu32
                            " is more than clients %" PRIu32,
                            at->file, task->min_clients_for_start, task->n_clients);
    }
    if (task->min_clients_for_start == 0) {
        task->min_clients_for_start = task->n_clients;
    }
    return DUNLIN_OK;
}

static dunlin_status read_root(const dunlin__task_place *at, json_t *root,
                               const dunlin_alloc *alloc, dunlin__server_task *task)
{
    static const char *const names[] = {
        "population", "task", "model", "initial", "local", "plan", "policy", "algorithm",
        "update_form", "deadline_s", "tensors", "compress", "dp", "secagg", "buffered", "selection",
        /* task_strategy.c */
        "strategy", "server_lr", "server_momentum", "beta1", "beta2", "tau", "trim"};
    if (!json_is_object(root)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: must hold one object",
                            at->file);
    }
    DUNLIN_TRY(
        dunlin__task_refuse_unknown(at, root, task_fields, N_OF(task_fields), names, N_OF(names)));
    DUNLIN_TRY(read_names(at, root, task));
    DUNLIN_TRY(dunlin__task_read_fields(at, root, task_fields, N_OF(task_fields), task));
    const dunlin__task_object plan = {"plan", plan_fields, N_OF(plan_fields),
                                      dunlin__task_order_names, DUNLIN_TASK_ORDER_NAMES};
    const dunlin__task_object policy = {
        .key = "policy", .rows = policy_fields, .n_rows = N_OF(policy_fields)};
    DUNLIN_TRY(dunlin__task_read_object(at, root, &plan, task));
    DUNLIN_TRY(dunlin__task_read_object(at, root, &policy, task));
    DUNLIN_TRY(dunlin__task_read_orders(at, root, task));
    DUNLIN_TRY(dunlin__task_read_precision(at, root, task));
    DUNLIN_TRY(dunlin__task_read_rounds(at, root, task));
    DUNLIN_TRY(read_algorithm(at, root, task));
    DUNLIN_TRY(read_form(at, root, task));
    DUNLIN_TRY(read_compress(at, root, task));
    DUNLIN_TRY(dunlin__task_read_strategy(at, root, task));
    DUNLIN_TRY(dunlin__task_read_tensors(at, root, alloc, task));
    DUNLIN_TRY(dunlin__task_read_dp(at, root, alloc, task));
    DUNLIN_TRY(dunlin__task_read_secagg(at, root, alloc, task));
    DUNLIN_TRY(check_clip(at, root, &task->plan));
    DUNLIN_TRY(dunlin__task_read_unequal(at, root, task));
    return check_together(at, task);
}

dunlin_status dunlin__server_task_read(const char *path, const dunlin_alloc *alloc,
                                       dunlin__server_task *out_task, dunlin_error *error)
{
    memset(out_task, 0, sizeof *out_task);
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__server_file_read(alloc, path, TASK_FILE_BYTES, &bytes, &n_bytes, error));
    json_error_t where;
    json_t *root = json_loadb((const char *)bytes, n_bytes, JSON_REJECT_DUPLICATES, &where);
    dunlin__free_array(alloc, bytes, n_bytes + 1, 1);
    if (root == NULL) {
        return dunlin__fail(error, DUNLIN_DATA, "task", 0, "%.80s: line %d: %.100s", path,
                            where.line, where.text);
    }
    dunlin__task_place at = {path, "", error};
    dunlin_status status = read_root(&at, root, alloc, out_task);
    json_decref(root);
    if (status != DUNLIN_OK) {
        dunlin__server_task_free(out_task, alloc);
    }
    return status;
}

void dunlin__server_task_free(dunlin__server_task *task, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, task->tensors, task->n_tensors, sizeof *task->tensors);
    task->tensors = NULL;
    task->n_tensors = 0;
}

bool dunlin__server_task_is_evaluation(const dunlin__server_task *task, uint64_t round)
{
    return task->evaluate_every > 0 && round % task->evaluate_every == 0;
}

bool dunlin__server_task_is_judged(const dunlin__server_task *task)
{
    return task->evaluate_every > 0 || task->plan.evaluates;
}

bool dunlin__server_task_judges(const dunlin__server_task *task, uint64_t round)
{
    return task->judge_every < 2 || round % task->judge_every == 0 || round == task->rounds;
}
