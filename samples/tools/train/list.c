/*
 * list.c - dunlin-train --list: every parameter of the model, as the flags would have it trained.
 */
#include "common/output.h"
#include "object.h"
#include "train.h"

#include <inttypes.h>
#include <stdio.h>

#define SHAPE_TEXT_BYTES 96

/* What the list adds up to as it is printed. */
typedef struct listing {
    json_t *rows; /* NULL: no JSON is asked for */
    int64_t n_parameters, n_elements;
    int64_t n_trained, n_trained_elements;
} listing;

/* "64 x 3 x 3 x 3"; "1" without dimensions. */
static void shape_text(const dunlin_shape *shape, char out_text[SHAPE_TEXT_BYTES])
{
    int at = shape->n_dims == 0 ? snprintf(out_text, SHAPE_TEXT_BYTES, "1") : 0;
    for (int32_t d = 0; d < shape->n_dims && at < SHAPE_TEXT_BYTES; d++) {
        at += snprintf(out_text + at, (size_t)(SHAPE_TEXT_BYTES - at), "%s%" PRId64,
                       d == 0 ? "" : " x ", shape->dims[d]);
    }
}

static json_t *entry_object(const dunlin_parameter_entry *entry)
{
    json_t *row = json_object();
    json_t *shape = json_array();
    for (int32_t d = 0; d < entry->shape.n_dims; d++) {
        (void)json_array_append_new(shape, json_integer(entry->shape.dims[d]));
    }
    (void)json_object_set_new(row, "name", json_string(entry->name));
    (void)json_object_set_new(row, "shape", shape);
    (void)json_object_set_new(row, "role", json_string(dunlin_parameter_use_name(entry->use)));
    (void)json_object_set_new(row, "trained", json_boolean(entry->is_trained));
    (void)json_object_set_new(row, "group",
                              entry->group < 0 ? json_null() : json_string(entry->group_name));
    (void)json_object_set_new(row, "lr_factor", json_real((double)entry->lr_factor));
    (void)json_object_set_new(row, "decay_factor", json_real((double)entry->decay_factor));
    return row;
}

static void print_entry(void *ctx, const dunlin_parameter_entry *entry)
{
    listing *list = ctx;
    char shape[SHAPE_TEXT_BYTES];
    shape_text(&entry->shape, shape);
    const char *state = entry->use == DUNLIN_USE_STATISTIC ? "-" : "fixed";
    state = entry->is_trained ? "trained" : state;
    printf("%-44s %-22s %-10s %-7s", entry->name, shape, dunlin_parameter_use_name(entry->use),
           state);
    if (entry->is_trained && (entry->group >= 0 || entry->decay_factor != 1.0F)) {
        printf(" %s%srate x%g, decay x%g", entry->group_name, entry->group >= 0 ? ": " : "",
               (double)entry->lr_factor, (double)entry->decay_factor);
    }
    printf("\n");
    list->n_parameters++;
    list->n_elements += entry->n_elements;
    list->n_trained += entry->is_trained ? 1 : 0;
    list->n_trained_elements += entry->is_trained ? entry->n_elements : 0;
    if (list->rows != NULL) {
        (void)json_array_append_new(list->rows, entry_object(entry));
    }
}

/* Takes over the rows. */
static int write_json(const train_flags *flags, const dunlin_model *model, const listing *list)
{
    json_t *root = json_object();
    train_set_outcome(root, EXIT_OK);
    (void)json_object_set_new(root, "model", json_string(flags->model));
    (void)json_object_set_new(root, "params",
                              json_integer(dunlin_model_n_trainable_elements(model)));
    (void)json_object_set_new(root, "parameters", list->rows);
    char error[OUTPUT_ERROR_BYTES];
    const bool is_written = output_json(flags->json, root, error);
    json_decref(root);
    return is_written ? EXIT_OK : program_fail(&train_program, "%s", error);
}

int train_list(const train_flags *flags, const dunlin_model *model)
{
    const dunlin_trainer_options options = train_options(flags);
    listing list = {.rows = flags->json != NULL ? json_array() : NULL};
    dunlin_error error = {0};
    if (dunlin_model_list_parameters(model, &options, print_entry, &list, &error) != DUNLIN_OK) {
        json_decref(list.rows);
        return train_fail(&error);
    }
    printf("%" PRId64 " parameters of %" PRId64 " numbers; trained: %" PRId64 " of %" PRId64 "\n",
           list.n_parameters, list.n_elements, list.n_trained, list.n_trained_elements);
    return flags->json != NULL ? write_json(flags, model, &list) : EXIT_OK;
}
