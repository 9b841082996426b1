/*
 * weights.c - parameters in and out: by name, and as one flat row of numbers that can be moved
 * piece by piece.
 *
 * Invariant: outside a parameter has ONNX's shape and order, inside the layout its kernels read;
 * both hold the same floats, bit for bit. Nothing that is not finite gets in.
 */
#include "weights.h"

#include "net/params.h"
#include "step/context/context.h"
#include "step/context/guard.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_INIT_FLOATS ((uint64_t)1 << 20)
#define MIN_INIT_FLOATS 1024

float *dunlin__trainer_floats(const dunlin_trainer *trainer, uint32_t tensor)
{
    const uint64_t offset = dunlin__persistent_offset(&trainer->train, tensor);
    assert(offset < trainer->arena.committed_bytes);
    return (float *)(void *)(trainer->arena.base + offset);
}

/*
 * Both inner layouts are a transposition: ONNX holds a row of `n_row` elements for each output o;
 * inside, element r of row o lies at place(r) * n_outputs + o.
 */
typedef struct layout_walk {
    int64_t n_outputs;
    int64_t n_row;
    int64_t kernel_area; /* a row is [inputs][kernel area] outside, [kernel area][inputs] inside */
    int64_t n_inputs;
} layout_walk;

static int64_t at_least_one(int64_t n)
{
    return n < 1 ? 1 : n;
}

static layout_walk walk_of(const dunlin_net_param *param)
{
    const bool is_conv = param->layout == DUNLIN_PARAM_CONV;
    const int64_t kernel_area = is_conv ? param->shape.dims[2] * param->shape.dims[3] : 1;
    /* Dimensions are 1 or more: inference has seen to it. */
    layout_walk walk = {.n_outputs = at_least_one(param->shape.dims[0]),
                        .kernel_area = at_least_one(kernel_area)};
    walk.n_row = at_least_one(param->n_elements / walk.n_outputs);
    walk.n_inputs = walk.n_row / walk.kernel_area;
    return walk;
}

static int64_t inner_index(const layout_walk *walk, int64_t element)
{
    const int64_t output = element / walk->n_row;
    const int64_t in_row = element % walk->n_row;
    const int64_t input = in_row / walk->kernel_area;
    const int64_t tap = in_row % walk->kernel_area;
    return (tap * walk->n_inputs + input) * walk->n_outputs + output;
}

void dunlin__layout_load(const dunlin_net_param *param, const float *floats, int64_t first,
                         int64_t n, float *out)
{
    if (param->layout == DUNLIN_PARAM_PLAIN) {
        memcpy(out, floats + first, (size_t)n * sizeof *out);
        return;
    }
    const layout_walk walk = walk_of(param);
    for (int64_t i = 0; i < n; i++) {
        out[i] = floats[inner_index(&walk, first + i)];
    }
}

void dunlin__layout_store(const dunlin_net_param *param, float *floats, int64_t first, int64_t n,
                          const float *values)
{
    if (param->layout == DUNLIN_PARAM_PLAIN) {
        memcpy(floats + first, values, (size_t)n * sizeof *values);
        return;
    }
    const layout_walk walk = walk_of(param);
    for (int64_t i = 0; i < n; i++) {
        floats[inner_index(&walk, first + i)] = values[i];
    }
}

static bool is_of_kind(const dunlin_net_param *param, dunlin_weights_kind kind)
{
    const dunlin_weights_kind own = param->role == DUNLIN_PARAMETER_STATISTIC
                                        ? DUNLIN_WEIGHTS_STATISTIC
                                        : DUNLIN_WEIGHTS_TRAINABLE;
    return ((uint32_t)own & (uint32_t)kind) != 0;
}

static dunlin_status init_param(dunlin_trainer *trainer, dunlin_param_reader *reader,
                                uint32_t index, float *block, int64_t block_floats,
                                dunlin_error *error)
{
    const dunlin_net_param *param = &trainer->net.params[index];
    float *floats = dunlin__trainer_floats(trainer, trainer->train.step->params[index].tensor);
    int64_t n_block = block_floats;
    if (param->layout != DUNLIN_PARAM_PLAIN) {
        /* Whole rows where one fits: a transposed store is read in stretches. */
        const int64_t n_row = walk_of(param).n_row;
        n_block = n_row <= n_block ? n_block / n_row * n_row : n_block;
    }
    for (int64_t first = 0; first < param->n_elements; first += n_block) {
        const int64_t left = param->n_elements - first;
        const int64_t n = left < n_block ? left : n_block;
        DUNLIN_TRY(dunlin__param_read(reader, index, first, n, block, error));
        dunlin__layout_store(param, floats, first, n, block);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_init_weights(dunlin_trainer *trainer, dunlin_error *error)
{
    const uint64_t persistent = trainer->train.lowered.persistent_bytes;
    if (persistent > 0) {
        memset(dunlin__arena_at(&trainer->arena, 0, persistent), 0, (size_t)persistent);
    }
    /* The pool is idle: large blocks through it cost no byte. */
    float small[MIN_INIT_FLOATS];
    float *block = small;
    uint64_t n_floats = (trainer->arena_bytes - persistent) / sizeof(float);
    n_floats = n_floats > MAX_INIT_FLOATS ? MAX_INIT_FLOATS : n_floats;
    if (n_floats > MIN_INIT_FLOATS) {
        block = dunlin__arena_at(&trainer->arena, persistent, n_floats * sizeof(float));
    } else {
        n_floats = MIN_INIT_FLOATS;
    }
    dunlin_param_reader reader;
    dunlin__param_reader_init(&reader, &trainer->net, trainer->seed);
    dunlin_status status = DUNLIN_OK;
    for (uint32_t i = 0; i < trainer->net.n_params && status == DUNLIN_OK; i++) {
        status = init_param(trainer, &reader, i, block, (int64_t)n_floats, error);
    }
    dunlin__param_reader_close(&reader);
    return status;
}

int64_t dunlin_trainer_n_weights(const dunlin_trainer *trainer, dunlin_weights_kind kind)
{
    int64_t n = 0;
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        n += is_of_kind(&trainer->net.params[i], kind) ? trainer->net.params[i].n_elements : 0;
    }
    return n;
}

static dunlin_status check_range(const dunlin_trainer *trainer, dunlin_weights_kind kind,
                                 int64_t first, int64_t n, const float *values)
{
    const int64_t total = dunlin_trainer_n_weights(trainer, kind);
    if (kind < DUNLIN_WEIGHTS_TRAINABLE || kind > DUNLIN_WEIGHTS_ALL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "%d is no kind of weights", (int)kind);
    }
    if (values == NULL && n > 0) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no buffer for %" PRId64 " weights", n);
    }
    if (first < 0 || n < 0 || first > total || n > total - first) {
        return dunlin__fail(trainer->error, DUNLIN_MISMATCH, "trainer", 0,
                            "weights %" PRId64 " + %" PRId64 " of %" PRId64 " are asked for", first,
                            n, total);
    }
    return DUNLIN_OK;
}

static dunlin_status check_finite(const dunlin_trainer *trainer, const char *name, int64_t n,
                                  const float *values)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            return dunlin__fail(trainer->error, DUNLIN_NUMERIC, "trainer", 0,
                                "element %" PRId64 " of the %" PRId64
                                " values for %.80s is not finite",
                                i, n, name);
        }
    }
    return DUNLIN_OK;
}

/* A piece of the flat row that lies in one parameter. */
typedef struct flat_piece {
    uint32_t param;
    int64_t first; /* in the parameter */
    int64_t n;
} flat_piece;

/* The piece at `position`, at most `n` long. */
static flat_piece piece_at(const dunlin_trainer *trainer, dunlin_weights_kind kind,
                           int64_t position, int64_t n)
{
    int64_t before = 0;
    for (uint32_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_net_param *param = &trainer->net.params[i];
        if (!is_of_kind(param, kind)) {
            continue;
        }
        if (position < before + param->n_elements) {
            const int64_t first = position - before;
            const int64_t left = param->n_elements - first;
            return (flat_piece){.param = i, .first = first, .n = left < n ? left : n};
        }
        before += param->n_elements;
    }
    return (flat_piece){.n = n};
}

static void reset_optimizer(dunlin_trainer *trainer)
{
    trainer->step = 0;
    dunlin__trainer_forget_rows(trainer);
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_step_param *param = &trainer->train.step->params[i];
        const uint32_t state[] = {param->momentum, param->square};
        for (size_t k = 0; k < sizeof state / sizeof state[0]; k++) {
            if (state[k] != DUNLIN_STEP_NONE) {
                memset(dunlin__trainer_floats(trainer, state[k]), 0,
                       (size_t)trainer->net.params[i].n_elements * sizeof(float));
            }
        }
    }
}

/* Values of one parameter from outside. A torn trainer is whole again when the last of all has
 * been set: with weights that belong together, and an optimiser that has seen nothing. */
static void set_piece(dunlin_trainer *trainer, const flat_piece *piece, const float *values)
{
    dunlin_step_param *params = trainer->train.step->params;
    dunlin_step_param *param = &params[piece->param];
    dunlin__layout_store(&trainer->net.params[piece->param],
                         dunlin__trainer_floats(trainer, param->tensor), piece->first, piece->n,
                         values);
    if (!trainer->is_torn) {
        return;
    }
    const int64_t end = piece->first + piece->n;
    if (piece->first <= param->n_set && end > param->n_set) {
        param->n_set = end;
    }
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        if (params[i].n_set < trainer->net.params[i].n_elements) {
            return;
        }
    }
    reset_optimizer(trainer);
    trainer->is_torn = false;
    if (trainer->swap != NULL) {
        trainer->swap->file.has_lost = false;
    }
}

dunlin_status dunlin_trainer_get_weights(const dunlin_trainer *trainer, dunlin_weights_kind kind,
                                         int64_t first, int64_t n, float *out_values)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(check_range(trainer, kind, first, n, out_values));
    for (int64_t done = 0; done < n;) {
        const flat_piece piece = piece_at(trainer, kind, first + done, n - done);
        const uint32_t tensor = trainer->train.step->params[piece.param].tensor;
        dunlin__layout_load(&trainer->net.params[piece.param],
                            dunlin__trainer_floats(trainer, tensor), piece.first, piece.n,
                            out_values + done);
        done += piece.n;
    }
    return DUNLIN_OK;
}

static dunlin_status set_weights(dunlin_trainer *trainer, dunlin_weights_kind kind, int64_t first,
                                 int64_t n, const float *values)
{
    DUNLIN_TRY(check_range(trainer, kind, first, n, values));
    DUNLIN_TRY(check_finite(trainer, "the weights", n, values));
    for (int64_t done = 0; done < n;) {
        const flat_piece piece = piece_at(trainer, kind, first + done, n - done);
        set_piece(trainer, &piece, values + done);
        done += piece.n;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_set_weights(dunlin_trainer *trainer, dunlin_weights_kind kind,
                                         int64_t first, int64_t n, const float *values)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, set_weights(trainer, kind, first, n, values));
}

int32_t dunlin_trainer_n_parameters(const dunlin_trainer *trainer)
{
    return (int32_t)trainer->net.n_params;
}

dunlin_status dunlin_trainer_parameter(const dunlin_trainer *trainer, int32_t index,
                                       dunlin_parameter_info *out_info)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    if (index < 0 || (size_t)index >= trainer->net.n_params || out_info == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no parameter %" PRId32 " among %zu", index,
                            trainer->net.n_params);
    }
    const dunlin_net_param *param = &trainer->net.params[index];
    *out_info = (dunlin_parameter_info){.name = param->name,
                                        .shape = param->shape,
                                        .n_elements = param->n_elements,
                                        .role = param->role};
    return DUNLIN_OK;
}

static dunlin_status find_param(const dunlin_trainer *trainer, const char *name, int64_t n,
                                const float *values, uint32_t *out_index)
{
    if (name == NULL || values == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a parameter's name and a buffer are needed");
    }
    for (uint32_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_net_param *param = &trainer->net.params[i];
        if (strcmp(param->name, name) != 0) {
            continue;
        }
        if (param->n_elements != n) {
            return dunlin__fail(trainer->error, DUNLIN_MISMATCH, "trainer", 0,
                                "parameter \"%.100s\" has %" PRId64 " elements, not %" PRId64, name,
                                param->n_elements, n);
        }
        *out_index = i;
        return DUNLIN_OK;
    }
    return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                        "there is no parameter \"%.100s\"", name);
}

dunlin_status dunlin_trainer_get_parameter(const dunlin_trainer *trainer, const char *name,
                                           float *out_values, int64_t n)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    uint32_t index = 0;
    DUNLIN_TRY(find_param(trainer, name, n, out_values, &index));
    const uint32_t tensor = trainer->train.step->params[index].tensor;
    dunlin__layout_load(&trainer->net.params[index], dunlin__trainer_floats(trainer, tensor), 0, n,
                        out_values);
    return DUNLIN_OK;
}

static dunlin_status set_parameter(dunlin_trainer *trainer, const char *name, const float *values,
                                   int64_t n)
{
    uint32_t index = 0;
    DUNLIN_TRY(find_param(trainer, name, n, values, &index));
    DUNLIN_TRY(check_finite(trainer, name, n, values));
    set_piece(trainer, &(flat_piece){.param = index, .n = n}, values);
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_set_parameter(dunlin_trainer *trainer, const char *name,
                                           const float *values, int64_t n)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, set_parameter(trainer, name, values, n));
}

static dunlin_status copy_weights_to_slot(dunlin_trainer *trainer, int32_t slot)
{
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (slot < 0 || slot >= trainer->options.n_gradient_slots) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no slot %" PRId32 " among %" PRId32, slot,
                            trainer->options.n_gradient_slots);
    }
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const dunlin_step_param *param = &trainer->train.step->params[i];
        if (param->slots[slot] != DUNLIN_STEP_NONE) {
            memcpy(dunlin__trainer_floats(trainer, param->slots[slot]),
                   dunlin__trainer_floats(trainer, param->tensor),
                   (size_t)trainer->net.params[i].n_elements * sizeof(float));
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_copy_weights_to_slot(dunlin_trainer *trainer, int32_t slot)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer, copy_weights_to_slot(trainer, slot));
}

void dunlin__trainer_forget_rows(const dunlin_trainer *trainer)
{
    for (size_t i = 0; i < trainer->net.n_params; i++) {
        const uint32_t rows = trainer->train.step->params[i].rows;
        if (rows != DUNLIN_STEP_NONE) {
            memset(dunlin__trainer_floats(trainer, rows), DUNLIN_ROW_UNKNOWN,
                   (size_t)trainer->train.step->tensors[rows].n_elements);
        }
    }
}

void dunlin_trainer_reset_optimizer(dunlin_trainer *trainer)
{
    if (dunlin__trainer_enter(trainer) != DUNLIN_OK) {
        return;
    }
    atomic_store(&trainer->is_stopping, false);
    if (dunlin__trainer_check(trainer) == DUNLIN_OK) {
        reset_optimizer(trainer);
    }
    (void)dunlin__trainer_leave(trainer, DUNLIN_OK);
}
