/*
 * task.c - reads the task file.
 *
 * Invariant: every key is a row of a table with its kind, range and default, so what is accepted
 * can be read here in one place, and nothing is silently ignored.
 */
#include "task.h"

#include "files.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define TASK_FILE_BYTES (4u * 1024 * 1024)

typedef enum field_kind { KIND_U32, KIND_U64, KIND_REAL, KIND_BOOL } field_kind;

typedef struct field {
    const char *key;
    size_t offset;
    field_kind kind;
    double least;
    double most;
    double fallback; /* negative: the key must be there */
} field;

#define TASK(key, member, kind, least, most, fallback)                                             \
    {                                                                                              \
        key, offsetof(dunlin__server_task, member), kind, least, most, fallback                    \
    }
#define REQUIRED (-1.0)
#define LARGE 9007199254740992.0     /* 2^53: whole numbers of JSON are exact up to here */
#define MAX_EXAMPLES 1099511627776.0 /* 2^40, as the protocol has it */

static const field task_fields[] = {
    TASK("classes", classes, KIND_U32, 0, 1e6, 0),
    TASK("image", image, KIND_U32, 0, 4096, 0),
    TASK("channels", channels, KIND_U32, 0, 64, 0),
    TASK("rounds", rounds, KIND_U64, 1, DUNLIN_SERVER_ROUNDS, REQUIRED),
    TASK("evaluate_every", evaluate_every, KIND_U64, 0, DUNLIN_SERVER_ROUNDS, 0),
    TASK("cohort", cohort, KIND_U32, 1, DUNLIN_SERVER_CLIENTS, REQUIRED),
    TASK("over_select", over_select, KIND_REAL, 1, 100, 1),
    TASK("clients", n_clients, KIND_U32, 0, DUNLIN_SERVER_CLIENTS, 0),
    TASK("min_clients_for_start", min_clients_for_start, KIND_U32, 0, DUNLIN_SERVER_CLIENTS, 0),
    TASK("min_reports", min_reports, KIND_U32, 1, DUNLIN_SERVER_CLIENTS, 1),
    TASK("weight_cap", weight_cap, KIND_U64, 1, MAX_EXAMPLES, 1e9),
    TASK("chunk_bytes", chunk_bytes, KIND_U32, DUNLIN_WIRE_CHUNK_MIN_BYTES,
         DUNLIN_WIRE_CHUNK_MAX_BYTES, DUNLIN_WIRE_CHUNK_DEFAULT_BYTES),
    TASK("seed", seed, KIND_U64, 0, LARGE, 0),
    TASK("test_examples", test_examples, KIND_U64, 0, MAX_EXAMPLES, 0),
};

static const field plan_fields[] = {
    TASK("epochs", plan.n_epochs, KIND_U32, 1, 10000, 1),
    TASK("batch", plan.batch, KIND_U32, 1, 65536, 32),
    TASK("max_steps", plan.max_steps, KIND_U64, 0, LARGE, 0),
    TASK("max_examples", plan.max_examples, KIND_U64, 0, MAX_EXAMPLES, 0),
    TASK("lr", plan.lr, KIND_REAL, 1e-12, 1000, 0.01),
    TASK("momentum", plan.momentum, KIND_REAL, 0, 0.99999, 0),
    TASK("weight_decay", plan.weight_decay, KIND_REAL, 0, 1, 0),
    TASK("proximal_mu", plan.proximal_mu, KIND_REAL, 0, 1000, 0),
    TASK("lr_decay", plan.lr_decay, KIND_REAL, 1e-6, 1, 1),
    TASK("clip_norm", plan.clip_norm, KIND_REAL, 0, 1e6, 0),
    TASK("evaluate", plan.evaluates, KIND_BOOL, 0, 1, 0),
};

static const field policy_fields[] = {
    TASK("min_examples", policy.min_examples, KIND_U64, 0, LARGE, 0),
    TASK("min_separation_ms", policy.min_separation_ms, KIND_U64, 0, 3e10, 0),
    TASK("min_separation_rounds", policy.min_separation_rounds, KIND_U32, 0, 1e6, 0),
    TASK("requires_charging", policy.requires_charging, KIND_BOOL, 0, 1, 0),
    TASK("requires_unmetered", policy.requires_unmetered, KIND_BOOL, 0, 1, 0),
    TASK("requires_idle", policy.requires_idle, KIND_BOOL, 0, 1, 0),
};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Where a value stands, for texts: "tasks.json: plan.lr". */
typedef struct place {
    const char *file;
    const char *object; /* "" or "plan." */
    dunlin_error *error;
} place;

static dunlin_status bad_number(const place *at, const field *row)
{
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                        "%.80s: %s%s must be a %s from %.15g to %.15g", at->file, at->object,
                        row->key, row->kind == KIND_REAL ? "number" : "whole number", row->least,
                        row->most);
}

static void store_number(dunlin__server_task *task, const field *row, double value)
{
    uint8_t *at = (uint8_t *)task + row->offset;
    switch (row->kind) {
    case KIND_U32:
        *(uint32_t *)(void *)at = (uint32_t)value;
        break;
    case KIND_U64:
        *(uint64_t *)(void *)at = (uint64_t)value;
        break;
    case KIND_REAL:
        *(double *)(void *)at = value;
        break;
    case KIND_BOOL:
        *(bool *)(void *)at = value > 0;
        break;
    }
}

static dunlin_status read_field(const place *at, const json_t *object, const field *row,
                                dunlin__server_task *task)
{
    const json_t *value = json_object_get(object, row->key);
    if (value == NULL) {
        if (row->fallback < 0) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: %s%s is missing",
                                at->file, at->object, row->key);
        }
        store_number(task, row, row->fallback);
        return DUNLIN_OK;
    }
    if (row->kind == KIND_BOOL) {
        if (!json_is_boolean(value)) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: %s%s must be true or false", at->file, at->object,
                                row->key);
        }
        store_number(task, row, json_is_true(value) ? 1 : 0);
        return DUNLIN_OK;
    }
    if (row->kind == KIND_REAL ? !json_is_number(value) : !json_is_integer(value)) {
        return bad_number(at, row);
    }
    double number = json_number_value(value);
    if (!(number >= row->least && number <= row->most)) {
        return bad_number(at, row);
    }
    store_number(task, row, number);
    return DUNLIN_OK;
}

static dunlin_status read_fields(const place *at, const json_t *object, const field *rows,
                                 size_t n_rows, dunlin__server_task *task)
{
    for (size_t i = 0; i < n_rows; i++) {
        DUNLIN_TRY(read_field(at, object, &rows[i], task));
    }
    return DUNLIN_OK;
}

static bool is_known(const char *key, const field *rows, size_t n_rows, const char *const *names,
                     size_t n_names)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(key, rows[i].key) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < n_names; i++) {
        if (strcmp(key, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static dunlin_status refuse_unknown(const place *at, json_t *object, const field *rows,
                                    size_t n_rows, const char *const *names, size_t n_names)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value)
    {
        if (!is_known(key, rows, n_rows, names, n_names)) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: unknown key %s%.60s",
                                at->file, at->object, key);
        }
    }
    return DUNLIN_OK;
}

/* An optional or required text of at most capacity - 1 bytes. */
static dunlin_status read_text(const place *at, const json_t *object, const char *key,
                               bool is_required, char *out_text, size_t capacity)
{
    const json_t *value = json_object_get(object, key);
    out_text[0] = 0;
    if (value == NULL && !is_required) {
        return DUNLIN_OK;
    }
    if (!json_is_string(value) || json_string_length(value) == 0 ||
        json_string_length(value) >= capacity ||
        strlen(json_string_value(value)) != json_string_length(value)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %s must be a text of 1 to %zu bytes", at->file, key,
                            capacity - 1);
    }
    memcpy(out_text, json_string_value(value), json_string_length(value) + 1);
    return DUNLIN_OK;
}

static dunlin_status read_names(const place *at, const json_t *root, dunlin__server_task *task)
{
    DUNLIN_TRY(read_text(at, root, "population", true, task->population, sizeof task->population));
    DUNLIN_TRY(read_text(at, root, "task", true, task->name, sizeof task->name));
    DUNLIN_TRY(read_text(at, root, "model", false, task->model, sizeof task->model));
    DUNLIN_TRY(read_text(at, root, "initial", false, task->initial, sizeof task->initial));
    DUNLIN_TRY(read_text(at, root, "local", false, task->local, sizeof task->local));
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

static dunlin_status read_deadline(const place *at, const json_t *root, dunlin__server_task *task)
{
    const json_t *value = json_object_get(root, "deadline_s");
    double seconds = value == NULL ? 600.0 : json_number_value(value);
    if ((value != NULL && !json_is_number(value)) || !(seconds >= 0.001 && seconds <= 2592000)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: deadline_s must be a number from 0.001 to 2592000", at->file);
    }
    task->deadline_ms = (uint64_t)(seconds * 1000);
    return DUNLIN_OK;
}

static dunlin_status read_algorithm(const place *at, const json_t *root, dunlin__server_task *task)
{
    char text[64] = "fedavg";
    if (json_object_get(root, "algorithm") != NULL) {
        DUNLIN_TRY(read_text(at, root, "algorithm", true, text, sizeof text));
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
    if (!(value > 0 && value <= 1000) ||
        (task->plan.proximal_mu > 0 && task->plan.proximal_mu != value)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: algorithm %.40s: wants fedavg, fedprox:MU (MU up to 1000) or "
                            "scaffold",
                            at->file, text);
    }
    task->plan.proximal_mu = value;
    return DUNLIN_OK;
}

static dunlin_status read_form(const place *at, const json_t *root, dunlin__server_task *task)
{
    char text[16] = "delta";
    if (json_object_get(root, "update_form") != NULL) {
        DUNLIN_TRY(read_text(at, root, "update_form", true, text, sizeof text));
    }
    task->sends_weights = strcmp(text, "weights") == 0;
    if (!task->sends_weights && strcmp(text, "delta") != 0) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: update_form %.12s: wants delta or weights", at->file, text);
    }
    return DUNLIN_OK;
}

static dunlin_status read_shape(const place *at, const json_t *object, dunlin_shape *out_shape)
{
    const json_t *dims = json_object_get(object, "shape");
    size_t n_dims = json_array_size(dims);
    bool is_right = json_is_array(dims) && n_dims <= DUNLIN_MAX_DIMS;
    out_shape->n_dims = (int32_t)n_dims;
    for (size_t i = 0; is_right && i < n_dims; i++) {
        const json_t *dim = json_array_get(dims, i);
        out_shape->dims[i] = json_integer_value(dim);
        is_right = json_is_integer(dim) && out_shape->dims[i] > 0;
    }
    if (!is_right) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: a tensor's shape must be a list of at most %d positive numbers",
                            at->file, DUNLIN_MAX_DIMS);
    }
    return DUNLIN_OK;
}

static dunlin_status read_tensor(const place *at, json_t *object, dunlin__tensor_entry *out_tensor)
{
    static const char *const names[] = {"name", "shape", "rule"};
    char name[DUNLIN_WIRE_NAME_BYTES];
    char rule[16] = "average";
    dunlin_shape shape = {0};
    if (!json_is_object(object)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: a tensor must be an object",
                            at->file);
    }
    DUNLIN_TRY(refuse_unknown(at, object, NULL, 0, names, N_OF(names)));
    DUNLIN_TRY(read_text(at, object, "name", true, name, sizeof name));
    DUNLIN_TRY(read_shape(at, object, &shape));
    if (json_object_get(object, "rule") != NULL) {
        DUNLIN_TRY(read_text(at, object, "rule", true, rule, sizeof rule));
    }
    dunlin_v1_rule_t number = DUNLIN_V1_RULE_UNSPECIFIED;
    if (strcmp(rule, "average") == 0) {
        number = DUNLIN_V1_RULE_AVERAGE;
    } else if (strcmp(rule, "statistic") == 0) {
        number = DUNLIN_V1_RULE_STATISTIC;
    } else if (strcmp(rule, "local") == 0) {
        number = DUNLIN_V1_RULE_LOCAL;
    } else {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: rule %.12s of tensor %.60s: wants average, statistic or local",
                            at->file, rule, name);
    }
    return dunlin__tensor_entry_make(name, &shape, number, out_tensor, at->error);
}

static dunlin_status read_tensors(const place *at, const json_t *root, const dunlin_alloc *alloc,
                                  dunlin__server_task *task)
{
    const json_t *list = json_object_get(root, "tensors");
    bool is_named = task->model[0] != 0;
    if (is_named == (list != NULL) || (is_named ? task->initial[0] : task->local[0]) != 0) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: wants either model (with local), or tensors (with initial if "
                            "not zeros)",
                            at->file);
    }
    if (is_named) {
        return DUNLIN_OK;
    }
    size_t n_tensors = json_array_size(list);
    if (n_tensors == 0 || n_tensors > DUNLIN_WIRE_TENSORS) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: tensors must be a list of 1 to %u", at->file,
                            DUNLIN_WIRE_TENSORS);
    }
    task->tensors = dunlin__alloc_zeroed(alloc, n_tensors, sizeof *task->tensors);
    if (task->tensors == NULL) {
        return dunlin__fail(at->error, DUNLIN_MEMORY, "task", 0, "%zu tensors", n_tensors);
    }
    task->n_tensors = (uint32_t)n_tensors;
    for (size_t i = 0; i < n_tensors; i++) {
        DUNLIN_TRY(read_tensor(at, json_array_get(list, i), &task->tensors[i]));
    }
    return DUNLIN_OK;
}

static dunlin_status read_object(const place *at, const json_t *root, const char *key,
                                 const field *rows, size_t n_rows, dunlin__server_task *task)
{
    json_t *object = json_object_get(root, key);
    json_t *empty = object == NULL ? json_object() : NULL;
    dunlin_status status = DUNLIN_OK;
    if (object != NULL && !json_is_object(object)) {
        status = dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: %s must be an object",
                              at->file, key);
    } else {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "%s.", key);
        place inside = {at->file, prefix, at->error};
        if (object != NULL) {
            status = refuse_unknown(&inside, object, rows, n_rows, NULL, 0);
        }
        if (status == DUNLIN_OK) {
            status = read_fields(&inside, object != NULL ? object : empty, rows, n_rows, task);
        }
    }
    json_decref(empty);
    return status;
}

/* Its variates follow from plain steps, and the server's from the number of devices. */
static dunlin_status check_scaffold(const place *at, const dunlin__server_task *task)
{
    const dunlin__server_plan *plan = &task->plan;
    const char *wrong = NULL;
    if (task->n_clients == 0) {
        wrong = "clients, how many there are";
    } else if (plan->momentum > 0) {
        wrong = "plan.momentum 0";
    } else if (plan->clip_norm > 0) {
        wrong = "no plan.clip_norm";
    } else if (task->sends_weights) {
        wrong = "update_form delta";
    }
    if (wrong != NULL && plan->is_scaffold) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: algorithm scaffold wants %s",
                            at->file, wrong);
    }
    return DUNLIN_OK;
}

static dunlin_status check_together(const place *at, dunlin__server_task *task)
{
    DUNLIN_TRY(check_scaffold(at, task));
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

static dunlin_status read_root(const place *at, json_t *root, const dunlin_alloc *alloc,
                               dunlin__server_task *task)
{
    static const char *const names[] = {"population",  "task",       "model",  "initial",
                                        "local",       "plan",       "policy", "algorithm",
                                        "update_form", "deadline_s", "tensors"};
    if (!json_is_object(root)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: must hold one object",
                            at->file);
    }
    DUNLIN_TRY(refuse_unknown(at, root, task_fields, N_OF(task_fields), names, N_OF(names)));
    DUNLIN_TRY(read_names(at, root, task));
    DUNLIN_TRY(read_fields(at, root, task_fields, N_OF(task_fields), task));
    DUNLIN_TRY(read_object(at, root, "plan", plan_fields, N_OF(plan_fields), task));
    DUNLIN_TRY(read_object(at, root, "policy", policy_fields, N_OF(policy_fields), task));
    DUNLIN_TRY(read_deadline(at, root, task));
    DUNLIN_TRY(read_algorithm(at, root, task));
    DUNLIN_TRY(read_form(at, root, task));
    DUNLIN_TRY(read_tensors(at, root, alloc, task));
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
    place at = {path, "", error};
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

uint32_t dunlin__server_task_n_select(const dunlin__server_task *task)
{
    double wanted = ceil((double)task->cohort * task->over_select - 1e-9);
    double most = task->n_clients != 0 ? task->n_clients : DUNLIN_SERVER_CLIENTS;
    return (uint32_t)(wanted < most ? wanted : most);
}
