/*
 * builtin_weights.c - copies the round's weights into the trainer and out of it, tensor by tensor.
 *
 * Invariant: weights pass through in blocks, so a model exists once, in the trainer's arena.
 */
#include "builtin.h"
#include "builtin_rounding.h"

#include <dunlin/trainer_advanced.h>

#include <math.h>
#include <string.h>

#define BLOCK_FLOATS 2048
#define TILE_ROWS 16
#define TILE_FLOATS 256

void dunlin__builtin_free_tensors(dunlin_builtin *builtin)
{
    size_t capacity = (size_t)builtin->tensors_capacity;
    dunlin__free_array(&builtin->alloc, builtin->tensors, capacity, sizeof *builtin->tensors);
    dunlin__free_array(&builtin->alloc, builtin->first_weights, capacity,
                       sizeof *builtin->first_weights);
    builtin->tensors = NULL;
    builtin->first_weights = NULL;
    builtin->n_tensors = 0;
    builtin->tensors_capacity = 0;
}

/* The trainer's parameter of a name and where it begins in the flat order; -1 if there is none. */
static int32_t find_parameter(const dunlin_trainer *trainer, const char *name,
                              dunlin_parameter_info *out_info, int64_t *out_first)
{
    int64_t first = 0;
    int32_t n_parameters = dunlin_trainer_n_parameters(trainer);
    for (int32_t i = 0; i < n_parameters; i++) {
        if (dunlin_trainer_parameter(trainer, i, out_info) != DUNLIN_OK) {
            return -1;
        }
        if (strcmp(out_info->name, name) == 0) {
            *out_first = first;
            return i;
        }
        first += out_info->n_elements;
    }
    return -1;
}

/* Whether a variance begins at a place of the flat order, which is the model's. */
static bool holds_variance(const dunlin_builtin *builtin, int64_t place)
{
    const dunlin_model *model = builtin->pool->model;
    int64_t first = 0;
    for (int32_t i = 0; i < dunlin_model_n_parameters(model) && first <= place; i++) {
        dunlin_parameter_info info = {0};
        if (first == place && dunlin_model_is_variance(model, i)) {
            return true;
        }
        first += dunlin_model_parameter(model, i, &info) == DUNLIN_OK ? info.n_elements : 0;
    }
    return false;
}

/* The server averages a variance as any other number, and what devices send may round to less than
 * nothing. */
static void raise_to_zero(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        values[i] = values[i] < 0.0F ? 0.0F : values[i];
    }
}

/* The next block of a tensor. */
static int64_t block_of(const dunlin_weights_tensor *tensor, int64_t done)
{
    const int64_t left = tensor->n_elements - done;
    return left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
}

static dunlin_status fail_load(dunlin_builtin *builtin, dunlin_status status,
                               const dunlin_weights_tensor *tensor)
{
    return dunlin__fail(&builtin->error, status, "learner", 0,
                        "tensor %.100s could not be loaded: %s", tensor->name,
                        dunlin_status_text(status));
}

/* In integers a parameter gets its scale before its values come; *out_unit is 0 in float32. */
static dunlin_status begin_tensor(dunlin_builtin *builtin, const dunlin_weights_reader *from,
                                  int32_t index, int32_t parameter, float *out_unit)
{
    const dunlin_weights_tensor *tensor = &from->tensors[index];
    float block[BLOCK_FLOATS];
    float largest = 0.0F;
    dunlin_status status = DUNLIN_OK;
    *out_unit = 0.0F;
    if (dunlin_trainer_n_scales(builtin->slot->trainer) == 0) {
        return DUNLIN_OK;
    }
    for (int64_t done = 0; status == DUNLIN_OK && done < tensor->n_elements;) {
        const int64_t n = block_of(tensor, done);
        status = from->read_fn(from->ctx, index, done, n, block);
        for (int64_t i = 0; status == DUNLIN_OK && i < n; i++) {
            /* Not a number stays, so that it is refused by name. */
            largest = fabsf(block[i]) <= largest ? largest : fabsf(block[i]);
        }
        done += n;
    }
    if (status == DUNLIN_OK) {
        status =
            dunlin_trainer_begin_parameter(builtin->slot->trainer, parameter, largest, out_unit);
    }
    return status == DUNLIN_OK ? DUNLIN_OK : fail_load(builtin, status, tensor);
}

/* How values are changed on their way into the trainer. */
typedef struct on_the_way {
    bool is_variance;
    float unit; /* in integers; 0: float32 */
    uint64_t key;
} on_the_way;

/* Where a tensor's values go, and how. */
typedef struct tensor_copy {
    dunlin_builtin *builtin;
    const dunlin_weights_reader *from;
    int32_t index;
    int64_t place; /* of its first value in the trainer's flat order */
    const on_the_way *way;
} tensor_copy;

/* At most BLOCK_FLOATS of them. */
static dunlin_status copy_block(const tensor_copy *copy, int64_t first, int64_t n)
{
    const dunlin_weights_reader *from = copy->from;
    const on_the_way *way = copy->way;
    float block[BLOCK_FLOATS];
    dunlin_status status = from->read_fn(from->ctx, copy->index, first, n, block);
    if (way->is_variance && status == DUNLIN_OK) {
        raise_to_zero(block, n);
    }
    if (way->unit > 0.0F && status == DUNLIN_OK) {
        dunlin__rounding_apply(way->key, way->unit, first, n, block);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_set_weights(copy->builtin->slot->trainer, DUNLIN_WEIGHTS_ALL,
                                            copy->place + first, n, block);
    }
    return status;
}

/* A trainer keeps a dense layer's weights transposed, so that neighbours of a row lie far apart
 * there, and those of a column in one line of the cache: a tile of rows is written at a time. */
static dunlin_status copy_rows(const tensor_copy *copy, int64_t n_rows, int64_t n_row)
{
    for (int64_t top = 0; top < n_rows; top += TILE_ROWS) {
        const int64_t bottom = top + TILE_ROWS < n_rows ? top + TILE_ROWS : n_rows;
        for (int64_t first = 0; first < n_row; first += TILE_FLOATS) {
            const int64_t left = n_row - first;
            for (int64_t row = top; row < bottom; row++) {
                DUNLIN_TRY(
                    copy_block(copy, row * n_row + first, left < TILE_FLOATS ? left : TILE_FLOATS));
            }
        }
    }
    return DUNLIN_OK;
}

/* A tensor's values into the trainer. */
static dunlin_status copy_values(const tensor_copy *copy)
{
    const dunlin_weights_tensor *tensor = &copy->from->tensors[copy->index];
    const dunlin_shape *shape = &tensor->shape;
    if (shape->n_dims == 2 && shape->dims[0] > 1 && shape->dims[1] >= 2 * TILE_FLOATS) {
        return copy_rows(copy, shape->dims[0], shape->dims[1]);
    }
    for (int64_t done = 0; done < tensor->n_elements;) {
        const int64_t n = block_of(tensor, done);
        DUNLIN_TRY(copy_block(copy, done, n));
        done += n;
    }
    return DUNLIN_OK;
}

static dunlin_status copy_tensor(dunlin_builtin *builtin, const dunlin_weights_reader *from,
                                 int32_t index, int64_t place, const on_the_way *way)
{
    const tensor_copy copy = {builtin, from, index, place, way};
    const dunlin_status status = copy_values(&copy);
    return status == DUNLIN_OK ? DUNLIN_OK : fail_load(builtin, status, &from->tensors[index]);
}

static dunlin_status load_tensor(dunlin_builtin *builtin, const dunlin_weights_reader *base,
                                 int32_t index)
{
    const dunlin_weights_tensor *tensor = &base->tensors[index];
    dunlin_trainer *trainer = builtin->slot->trainer;
    dunlin_parameter_info info = {0};
    int64_t first = 0;
    const int32_t parameter = find_parameter(trainer, tensor->name, &info, &first);
    if (parameter < 0) {
        return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                            "the server's tensor %.100s is not in the model of this device",
                            tensor->name);
    }
    if (info.n_elements != tensor->n_elements || info.shape.n_dims != tensor->shape.n_dims ||
        memcmp(info.shape.dims, tensor->shape.dims, sizeof(int64_t) * (size_t)info.shape.n_dims) !=
            0) {
        return dunlin__fail(
            &builtin->error, DUNLIN_MISMATCH, "learner", 0,
            "tensor %.100s has %lld elements at the server, %lld in the model of this device, "
            "or another shape",
            tensor->name, (long long)tensor->n_elements, (long long)info.n_elements);
    }
    for (int32_t i = 0; i < builtin->n_tensors; i++) {
        if (builtin->first_weights[i] == first) {
            return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                                "the server's model has tensor %.100s twice", tensor->name);
        }
    }
    builtin->tensors[builtin->n_tensors] = *tensor;
    builtin->first_weights[builtin->n_tensors++] = first;
    on_the_way way = {.is_variance = holds_variance(builtin, first),
                      .key = dunlin__rounding_key(builtin->seed, builtin->round, (uint64_t)index)};
    DUNLIN_TRY(begin_tensor(builtin, base, index, parameter, &way.unit));
    return copy_tensor(builtin, base, index, first, &way);
}

dunlin_status dunlin__builtin_load_weights(dunlin_builtin *builtin,
                                           const dunlin_weights_reader *base)
{
    int32_t n_shared = base->n_tensors;
    int32_t n_parameters = dunlin_trainer_n_parameters(builtin->slot->trainer);
    if (n_shared == 0 || base->n_tensors != n_parameters) {
        return dunlin__fail(&builtin->error, DUNLIN_MISMATCH, "learner", 0,
                            "the server's model has %d tensors, this device's has %d",
                            (int)base->n_tensors, (int)n_parameters);
    }
    builtin->tensors_capacity = n_shared;
    builtin->tensors =
        dunlin__alloc_zeroed(&builtin->alloc, (size_t)n_shared, sizeof *builtin->tensors);
    builtin->first_weights =
        dunlin__alloc_zeroed(&builtin->alloc, (size_t)n_shared, sizeof *builtin->first_weights);
    if (builtin->tensors == NULL || builtin->first_weights == NULL) {
        return dunlin__fail(&builtin->error, DUNLIN_MEMORY, "learner", 0,
                            "no memory for %d tensors", (int)n_shared);
    }
    for (int32_t i = 0; i < base->n_tensors; i++) {
        DUNLIN_TRY(load_tensor(builtin, base, i));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__builtin_load_correction(dunlin_builtin *builtin,
                                              const dunlin_weights_reader *base,
                                              const dunlin_weights_reader *correction)
{
    for (int32_t i = 0; i < builtin->n_tensors; i++) {
        DUNLIN_TRY(copy_tensor(builtin, correction, i, builtin->first_weights[i],
                               &(on_the_way){.is_variance = false}));
    }
    DUNLIN_TRY(dunlin_trainer_copy_weights_to_slot(builtin->slot->trainer, 0));
    for (int32_t i = 0; i < builtin->n_tensors; i++) {
        const on_the_way way = {.is_variance = holds_variance(builtin, builtin->first_weights[i])};
        DUNLIN_TRY(copy_tensor(builtin, base, i, builtin->first_weights[i], &way));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__builtin_pass_error(dunlin_builtin *builtin, dunlin_status status)
{
    const dunlin_error *error = dunlin_trainer_last_error(builtin->slot->trainer);
    if (status != DUNLIN_OK && error != NULL) {
        builtin->error = *error;
    }
    return status;
}

static dunlin_status read_weights(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    dunlin_builtin *builtin = ctx;
    return dunlin__builtin_pass_error(
        builtin, dunlin_trainer_get_weights(builtin->slot->trainer, DUNLIN_WEIGHTS_ALL,
                                            builtin->first_weights[index] + first, n, out));
}

dunlin_status dunlin__builtin_save(void *self, dunlin_weights_reader *out)
{
    dunlin_builtin *builtin = self;
    if (builtin->slot == NULL) {
        return DUNLIN_STATE;
    }
    if (builtin->has_failed) {
        return dunlin__fail(&builtin->error, DUNLIN_STATE, "learner", 0,
                            "save() after fit() has failed: there is no update");
    }
    out->ctx = builtin;
    out->tensors = builtin->tensors;
    out->n_tensors = builtin->n_tensors;
    out->read_fn = read_weights;
    return DUNLIN_OK;
}
