/*
 * task_json.c - values of a task file's JSON.
 */
#include "task_json.h"

#include <mem/support.h>

#include <string.h>

static dunlin_status bad_number(const dunlin__task_place *at, const dunlin__task_field *row)
{
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                        "%.80s: %s%s must be a %s from %.15g to %.15g", at->file, at->object,
                        row->key, row->kind == DUNLIN_TASK_REAL ? "number" : "whole number",
                        row->least, row->most);
}

static void store_number(dunlin__server_task *task, const dunlin__task_field *row, double value)
{
    uint8_t *at = (uint8_t *)task + row->offset;
    switch (row->kind) {
    case DUNLIN_TASK_U32:
        *(uint32_t *)(void *)at = (uint32_t)value;
        break;
    case DUNLIN_TASK_U64:
        *(uint64_t *)(void *)at = (uint64_t)value;
        break;
    case DUNLIN_TASK_REAL:
        *(double *)(void *)at = value;
        break;
    case DUNLIN_TASK_BOOL:
        *(bool *)(void *)at = value > 0;
        break;
    }
}

static dunlin_status read_field(const dunlin__task_place *at, const json_t *object,
                                const dunlin__task_field *row, dunlin__server_task *task)
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
    if (row->kind == DUNLIN_TASK_BOOL) {
        if (!json_is_boolean(value)) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: %s%s must be true or false", at->file, at->object,
                                row->key);
        }
        store_number(task, row, json_is_true(value) ? 1 : 0);
        return DUNLIN_OK;
    }
    if (row->kind == DUNLIN_TASK_REAL ? !json_is_number(value) : !json_is_integer(value)) {
        return bad_number(at, row);
    }
    double number = json_number_value(value);
    if (!(number >= row->least && number <= row->most)) {
        return bad_number(at, row);
    }
    store_number(task, row, number);
    return DUNLIN_OK;
}

dunlin_status dunlin__task_read_fields(const dunlin__task_place *at, const json_t *object,
                                       const dunlin__task_field *rows, size_t n_rows,
                                       dunlin__server_task *task)
{
    for (size_t i = 0; i < n_rows; i++) {
        DUNLIN_TRY(read_field(at, object, &rows[i], task));
    }
    return DUNLIN_OK;
}

static bool is_known(const char *key, const dunlin__task_field *rows, size_t n_rows,
                     const char *const *names, size_t n_names)
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

dunlin_status dunlin__task_refuse_unknown(const dunlin__task_place *at, json_t *object,
                                          const dunlin__task_field *rows, size_t n_rows,
                                          const char *const *names, size_t n_names)
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

dunlin_status dunlin__task_read_text(const dunlin__task_place *at, const json_t *object,
                                     const char *key, bool is_required, char *out_text,
                                     size_t capacity)
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
                            "%.80s: %s%s must be a text of 1 to %zu bytes", at->file, at->object,
                            key, capacity - 1);
    }
    memcpy(out_text, json_string_value(value), json_string_length(value) + 1);
    return DUNLIN_OK;
}

dunlin_status dunlin__task_read_object(const dunlin__task_place *at, const json_t *root,
                                       const dunlin__task_object *what, dunlin__server_task *task)
{
    json_t *object = json_object_get(root, what->key);
    json_t *empty = object == NULL ? json_object() : NULL;
    dunlin_status status = DUNLIN_OK;
    if (object != NULL && !json_is_object(object)) {
        status = dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: %s must be an object",
                              at->file, what->key);
    } else {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "%s.", what->key);
        dunlin__task_place inside = {at->file, prefix, at->error};
        if (object != NULL) {
            status = dunlin__task_refuse_unknown(&inside, object, what->rows, what->n_rows,
                                                 what->names, what->n_names);
        }
        if (status == DUNLIN_OK) {
            status = dunlin__task_read_fields(&inside, object != NULL ? object : empty, what->rows,
                                              what->n_rows, task);
        }
    }
    json_decref(empty);
    return status;
}
