/*
 * task_tensors.c - the tensors of an application's own model, as the task file lists them.
 */
#include "task_json.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <string.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static dunlin_status read_shape(const dunlin__task_place *at, const json_t *object,
                                dunlin_shape *out_shape)
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

static dunlin_status read_tensor(const dunlin__task_place *at, json_t *object,
                                 dunlin__tensor_entry *out_tensor)
{
    static const char *const names[] = {"name", "shape", "rule"};
    char name[DUNLIN_WIRE_NAME_BYTES];
    char rule[16] = "average";
    dunlin_shape shape = {0};
    if (!json_is_object(object)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: a tensor must be an object",
                            at->file);
    }
    DUNLIN_TRY(dunlin__task_refuse_unknown(at, object, NULL, 0, names, N_OF(names)));
    DUNLIN_TRY(dunlin__task_read_text(at, object, "name", true, name, sizeof name));
    DUNLIN_TRY(read_shape(at, object, &shape));
    if (json_object_get(object, "rule") != NULL) {
        DUNLIN_TRY(dunlin__task_read_text(at, object, "rule", true, rule, sizeof rule));
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

dunlin_status dunlin__task_read_tensors(const dunlin__task_place *at, const json_t *root,
                                        const dunlin_alloc *alloc, dunlin__server_task *task)
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
