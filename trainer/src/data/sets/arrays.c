/*
 * arrays.c - an app's arrays as a source.
 *
 * Invariant: what dunlin_arrays_fill_source() has accepted is read without a check but that of the
 * index.
 */
#include <dunlin/arrays.h>
#include <dunlin/several.h>
#include <mem/checked.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NO_LABEL (-1)

static dunlin_status read_x(const dunlin_arrays_view *view, const int64_t *indices, int64_t n,
                            void *out_x)
{
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= view->n) {
            return DUNLIN_ARGUMENT;
        }
        memcpy((uint8_t *)out_x + (size_t)i * view->example_bytes,
               (const uint8_t *)view->x + (size_t)indices[i] * view->example_bytes,
               view->example_bytes);
    }
    return DUNLIN_OK;
}

/* Labels or targets of an example; both have four bytes. */
static int64_t width_of(const dunlin_source_answer *answer)
{
    return answer->n_targets > 0 ? answer->n_targets : answer->n_labels > 0 ? answer->n_labels : 1;
}

/* A label of any type of whole numbers; one that 32 bits do not hold is none of any model. */
static int32_t label_at(const void *rows, dunlin_dtype dtype, int64_t i)
{
    if (dtype == DUNLIN_U8) {
        return ((const uint8_t *)rows)[i];
    }
    if (dtype == DUNLIN_I8) {
        return ((const int8_t *)rows)[i];
    }
    if (dtype == DUNLIN_I32) {
        return ((const int32_t *)rows)[i];
    }
    const int64_t wide = ((const int64_t *)rows)[i];
    return wide >= INT32_MIN && wide <= INT32_MAX ? (int32_t)wide : NO_LABEL;
}

static dunlin_status read_rows(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    const dunlin_arrays_view *view = ctx;
    DUNLIN_TRY(read_x(view, indices, n, out_x));
    for (int64_t i = 0; i < n * view->n_labels; i++) {
        const int64_t at = indices[i / view->n_labels] * view->n_labels + i % view->n_labels;
        out_y[i] = label_at(view->label_rows, view->label_dtype, at);
    }
    return DUNLIN_OK;
}

static dunlin_status read_labels(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    const dunlin_arrays_view *view = ctx;
    DUNLIN_TRY(read_x(view, indices, n, out_x));
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = view->labels == NULL ? NO_LABEL : view->labels[indices[i]];
    }
    return DUNLIN_OK;
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    const dunlin_arrays_view *view = ctx;
    DUNLIN_TRY(read_x(view, indices, n, out_x));
    const size_t n_targets = (size_t)view->n_targets;
    for (int64_t i = 0; i < n; i++) {
        memcpy(out_targets + (size_t)i * n_targets, view->targets + (size_t)indices[i] * n_targets,
               n_targets * sizeof *out_targets);
    }
    return DUNLIN_OK;
}

static float weigh(void *ctx, int64_t index)
{
    const dunlin_arrays_view *view = ctx;
    return view->weights[index];
}

/* Of several outputs, each from an array of its own. */
static dunlin_status read_answers(const dunlin_arrays_view *view, const int64_t *indices, int64_t n,
                                  void *const *out_answers)
{
    for (int32_t k = 0; k < view->n_answers; k++) {
        dunlin_arrays_view one = *view;
        one.x = view->answers[k].values;
        one.example_bytes = (size_t)width_of(&view->answers[k]) * sizeof(int32_t);
        DUNLIN_TRY(read_x(&one, indices, n, out_answers[k]));
    }
    return DUNLIN_OK;
}

/* Several inputs, each from an array of its own, and the answers. */
static dunlin_status read_several(void *ctx, const int64_t *indices, int64_t n,
                                  void *const *out_inputs, void *const *out_answers)
{
    const dunlin_arrays_view *view = ctx;
    for (int32_t k = 0; k < view->n_inputs; k++) {
        const dunlin_source_input *input = &view->inputs[k];
        dunlin_arrays_view one = *view;
        one.x = input->values;
        one.example_bytes = (size_t)input->n_elements * dunlin_dtype_bytes(input->dtype);
        DUNLIN_TRY(read_x(&one, indices, n, out_inputs[k]));
    }
    if (out_answers == NULL) {
        return DUNLIN_OK;
    }
    dunlin_arrays_view answers = *view; /* of which x has no bytes */
    if (view->answers != NULL) {
        return read_answers(view, indices, n, out_answers);
    }
    if (view->targets != NULL) {
        return read_targets(&answers, indices, n, out_inputs[0], out_answers[0]);
    }
    return view->label_rows != NULL
               ? read_rows(&answers, indices, n, out_inputs[0], out_answers[0])
               : read_labels(&answers, indices, n, out_inputs[0], out_answers[0]);
}

static dunlin_status check_dtype(dunlin_dtype dtype, dunlin_error *error)
{
    if (dtype != DUNLIN_U8 && dtype != DUNLIN_F32 && dtype != DUNLIN_I32) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "arrays: dtype %d of x: expected u8 (%d), f32 (%d) or i32 (%d)",
                            (int)dtype, (int)DUNLIN_U8, (int)DUNLIN_F32, (int)DUNLIN_I32);
    }
    return DUNLIN_OK;
}

static dunlin_status check_inputs(const dunlin_arrays *arrays, dunlin_error *error)
{
    if (arrays->n_inputs < 1 || arrays->n_inputs > DUNLIN_MODEL_MAX_INPUTS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "arrays: %" PRId32 " inputs: the limits are 1 and %d", arrays->n_inputs,
                            DUNLIN_MODEL_MAX_INPUTS);
    }
    for (int32_t k = 0; k < arrays->n_inputs; k++) {
        const dunlin_source_input *input = &arrays->inputs[k];
        uint64_t bytes = 0;
        size_t fitting = 0;
        DUNLIN_TRY(check_dtype(input->dtype, error));
        if (input->values == NULL || input->n_elements < 1) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "arrays: input %" PRId32 " has %" PRId64
                                " elements an example%s; at least 1 is needed",
                                k, input->n_elements,
                                input->values == NULL ? ", and its values are NULL" : "");
        }
        if (!dunlin__mul_u64((uint64_t)input->n_elements, dunlin_dtype_bytes(input->dtype),
                             &bytes) ||
            !dunlin__mul_u64(bytes, (uint64_t)arrays->n, &bytes) ||
            !dunlin__to_size(bytes, &fitting)) {
            return dunlin__fail(error, DUNLIN_OVERFLOW, "data", 0,
                                "arrays: %" PRId64 " examples do not fit the address space",
                                arrays->n);
        }
    }
    return DUNLIN_OK;
}

/* Bytes of an example; all of them, and all targets, fit the address space. */
static dunlin_status check_sizes(const dunlin_arrays *arrays, size_t *out_example_bytes,
                                 dunlin_error *error)
{
    DUNLIN_TRY(check_dtype(arrays->dtype, error));
    if (arrays->n < 1) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: %" PRId64 " examples: at least 1 is needed", arrays->n);
    }
    if (arrays->shape.n_dims < 1 || arrays->shape.n_dims > DUNLIN_MAX_DIMS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: an example of %d dimensions: the limits are 1 and %d",
                            (int)arrays->shape.n_dims, DUNLIN_MAX_DIMS);
    }
    for (int32_t i = 0; i < arrays->shape.n_dims; i++) {
        if (arrays->shape.dims[i] < 1) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "arrays: dimension %d of an example is %" PRId64
                                ": at least 1 is needed",
                                (int)i, arrays->shape.dims[i]);
        }
    }
    int64_t n_elements = 0;
    uint64_t bytes = 0;
    uint64_t all_bytes = 0;
    uint64_t target_bytes = 0;
    size_t fitting = 0;
    if (dunlin_shape_count(&arrays->shape, &n_elements) != DUNLIN_OK ||
        !dunlin__mul_u64((uint64_t)n_elements, dunlin_dtype_bytes(arrays->dtype), &bytes) ||
        !dunlin__mul_u64(bytes, (uint64_t)arrays->n, &all_bytes) ||
        !dunlin__mul_u64((uint64_t)arrays->n, sizeof(float), &target_bytes) ||
        (arrays->targets != NULL && arrays->n_targets > 0 &&
         !dunlin__mul_u64(target_bytes, (uint64_t)arrays->n_targets, &target_bytes)) ||
        !dunlin__to_size(all_bytes, &fitting) || !dunlin__to_size(target_bytes, &fitting)) {
        return dunlin__fail(error, DUNLIN_OVERFLOW, "data", 0,
                            "arrays: %" PRId64 " examples do not fit the address space", arrays->n);
    }
    *out_example_bytes = (size_t)bytes;
    return DUNLIN_OK;
}

static dunlin_status check_normalisation(const dunlin_arrays *arrays, dunlin_error *error)
{
    const int64_t n_channels = arrays->shape.n_dims == 3 ? arrays->shape.dims[0] : 1;
    if (!isfinite(arrays->scale)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: scale is %g; it must be finite", (double)arrays->scale);
    }
    for (int64_t c = 0; c < n_channels; c++) {
        if (arrays->mean != NULL && !isfinite(arrays->mean[c])) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "arrays: the mean of channel %" PRId64 " is not finite", c);
        }
        if (arrays->std != NULL && !(arrays->std[c] > 0.0F && isfinite(arrays->std[c]))) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "arrays: the deviation of channel %" PRId64
                                " is %g: it must be above 0 and finite",
                                c, (double)arrays->std[c]);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_weights(const dunlin_arrays *arrays, dunlin_error *error)
{
    bool has_any = arrays->weights == NULL;
    for (int64_t i = 0; arrays->weights != NULL && i < arrays->n; i++) {
        if (!(arrays->weights[i] >= 0.0F && isfinite(arrays->weights[i]))) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "arrays: the weight of example %" PRId64
                                " is %g: it must be finite and not negative",
                                i, (double)arrays->weights[i]);
        }
        has_any = has_any || arrays->weights[i] > 0.0F;
    }
    return has_any
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                              "arrays: the weights of all %" PRId64 " examples are 0", arrays->n);
}

static bool does_count(const dunlin_arrays *arrays, int64_t index)
{
    return arrays->weights == NULL || arrays->weights[index] > 0.0F;
}

static dunlin_status check_rows(const dunlin_arrays *arrays, dunlin_error *error)
{
    uint64_t all = 0;
    if (arrays->label_rows == NULL) {
        return DUNLIN_OK;
    }
    if (arrays->labels != NULL || arrays->targets != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: label_rows beside %s; a source has one of them",
                            arrays->labels != NULL ? "labels" : "targets");
    }
    if (arrays->label_dtype != DUNLIN_U8 && arrays->label_dtype != DUNLIN_I8 &&
        arrays->label_dtype != DUNLIN_I32 && arrays->label_dtype != DUNLIN_I64) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "arrays: dtype %d of labels: expected u8 (%d), i8 (%d), i32 (%d) or "
                            "i64 (%d)",
                            (int)arrays->label_dtype, (int)DUNLIN_U8, (int)DUNLIN_I8,
                            (int)DUNLIN_I32, (int)DUNLIN_I64);
    }
    if (arrays->n_labels < 1 || arrays->n_labels > INT32_MAX ||
        !dunlin__mul_u64((uint64_t)arrays->n, (uint64_t)arrays->n_labels * sizeof(int64_t), &all)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: %" PRId64 " labels of each of %" PRId64 " examples: 1 to %d",
                            arrays->n_labels, arrays->n, INT32_MAX);
    }
    return DUNLIN_OK;
}

static dunlin_status check_several_answers(const dunlin_arrays *arrays, dunlin_error *error)
{
    if (arrays->answers == NULL) {
        return DUNLIN_OK;
    }
    if (arrays->inputs == NULL || arrays->labels != NULL || arrays->targets != NULL ||
        arrays->label_rows != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: answers go with inputs, and without labels, targets and "
                            "label_rows; %s is %s",
                            arrays->inputs == NULL ? "inputs" : "one of those",
                            arrays->inputs == NULL ? "NULL" : "not NULL");
    }
    if (arrays->n_answers < 1 || arrays->n_answers > DUNLIN_MODEL_MAX_OUTPUTS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "arrays: %" PRId32 " answers: the limits are 1 and %d",
                            arrays->n_answers, DUNLIN_MODEL_MAX_OUTPUTS);
    }
    for (int32_t k = 0; k < arrays->n_answers; k++) {
        const dunlin_source_answer *answer = &arrays->answers[k];
        uint64_t bytes = 0;
        size_t fitting = 0;
        if (answer->values == NULL || answer->n_labels < 0 || answer->n_targets < 0) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "arrays: answer %" PRId32 " has %" PRId64 " labels and %" PRId64
                                " targets an example%s",
                                k, answer->n_labels, answer->n_targets,
                                answer->values == NULL ? ", and its values are NULL" : "");
        }
        if (!dunlin__mul_u64((uint64_t)width_of(answer), sizeof(int32_t), &bytes) ||
            !dunlin__mul_u64(bytes, (uint64_t)arrays->n, &bytes) ||
            !dunlin__to_size(bytes, &fitting)) {
            return dunlin__fail(error, DUNLIN_OVERFLOW, "data", 0,
                                "arrays: %" PRId64 " examples do not fit the address space",
                                arrays->n);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_answers(const dunlin_arrays *arrays, dunlin_error *error)
{
    DUNLIN_TRY(check_several_answers(arrays, error));
    if (arrays->labels != NULL && arrays->targets != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: neither labels nor targets is NULL; a source has one of them");
    }
    if (arrays->n_classes < 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0, "arrays: n_classes is %d",
                            (int)arrays->n_classes);
    }
    if (arrays->targets != NULL && arrays->n_targets < 1) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "arrays: targets, and n_targets is %" PRId64 ": at least 1 is needed",
                            arrays->n_targets);
    }
    for (int64_t i = 0; arrays->labels != NULL && arrays->n_classes > 0 && i < arrays->n; i++) {
        const int32_t label = arrays->labels[i];
        if ((label < 0 || label >= arrays->n_classes) && does_count(arrays, i)) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "arrays: label %d of example %" PRId64 ": the limits are 0 and %d",
                                (int)label, i, (int)(arrays->n_classes - 1));
        }
    }
    for (int64_t i = 0; arrays->targets != NULL && i < arrays->n; i++) {
        for (int64_t k = 0; k < arrays->n_targets && does_count(arrays, i); k++) {
            if (!isfinite(arrays->targets[i * arrays->n_targets + k])) {
                return dunlin__fail(
                    error, DUNLIN_DATA, "data", 0,
                    "arrays: target %" PRId64 " of example %" PRId64 " is not finite", k, i);
            }
        }
    }
    return DUNLIN_OK;
}

/* Of several inputs x is nothing: answers are read as of an x without bytes. */
static void leave_x_out(dunlin_arrays *arrays)
{
    if (arrays->inputs == NULL) {
        return;
    }
    arrays->x = arrays->inputs;
    arrays->shape = (dunlin_shape){1, {1}};
    arrays->dtype = DUNLIN_U8;
    arrays->mean = NULL;
    arrays->std = NULL;
    arrays->scale = 0.0F;
}

dunlin_status dunlin_arrays_fill_source(const dunlin_arrays *arrays, dunlin_arrays_view *view,
                                        dunlin_source *out_source, size_t source_bytes,
                                        dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    dunlin_arrays taken = DUNLIN_ARRAYS_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_arrays, arrays, &taken, out_error));
    leave_x_out(&taken);
    if (taken.x == NULL || view == NULL || out_source == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "data", 0, "arrays: %s is NULL",
                            taken.x == NULL ? "x"
                            : view == NULL  ? "the view"
                                            : "the source");
    }
    size_t example_bytes = 0;
    DUNLIN_TRY(check_sizes(&taken, &example_bytes, out_error));
    if (taken.inputs != NULL) {
        DUNLIN_TRY(check_inputs(&taken, out_error));
        example_bytes = 0;
    }
    DUNLIN_TRY(check_normalisation(&taken, out_error));
    DUNLIN_TRY(check_weights(&taken, out_error));
    DUNLIN_TRY(check_answers(&taken, out_error));
    DUNLIN_TRY(check_rows(&taken, out_error));
    *view = (dunlin_arrays_view){.x = taken.x,
                                 .labels = taken.labels,
                                 .targets = taken.targets,
                                 .weights = taken.weights,
                                 .n = taken.n,
                                 .n_targets = taken.n_targets,
                                 .example_bytes = example_bytes,
                                 .label_rows = taken.label_rows,
                                 .n_labels = taken.n_labels,
                                 .label_dtype = taken.label_dtype,
                                 .inputs = taken.inputs,
                                 .n_inputs = taken.inputs != NULL ? taken.n_inputs : 0,
                                 .answers = taken.answers,
                                 .n_answers = taken.answers != NULL ? taken.n_answers : 0};
    const bool has_several = taken.inputs != NULL;
    const bool has_rows = taken.label_rows != NULL;
    const bool has_targets = taken.targets != NULL;
    const dunlin_source source = {.struct_size = sizeof source,
                                  .ctx = view,
                                  .read_fn = has_several ? NULL
                                             : has_rows  ? read_rows
                                                         : read_labels,
                                  .n_labels = has_rows ? taken.n_labels : 1,
                                  .n_examples = taken.n,
                                  .dtype = taken.dtype,
                                  .scale = taken.scale,
                                  .mean = taken.mean,
                                  .std = taken.std,
                                  .weight_fn = taken.weights == NULL ? NULL : weigh,
                                  .read_targets_fn =
                                      has_targets && !has_several ? read_targets : NULL,
                                  .n_targets = has_targets ? taken.n_targets : 0,
                                  .read_arrays_fn = has_several ? read_several : NULL,
                                  .inputs = view->inputs,
                                  .n_inputs = view->n_inputs,
                                  .answers = view->answers,
                                  .n_answers = view->n_answers};
    dunlin__struct_fill(&source, sizeof source, out_source, source_bytes);
    return DUNLIN_OK;
}
