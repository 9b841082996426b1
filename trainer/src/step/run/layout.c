/*
 * layout.c - parameters in a program's arena, and as a flat row.
 *
 * Invariant: outside a parameter has ONNX's shape and order, inside the layout its kernels read;
 * both hold the same floats, bit for bit. Nothing that is not finite gets in.
 */
#include "layout.h"

#include "net/params.h"
#include "values.h"

#include <mem/support.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_INIT_FLOATS ((uint64_t)1 << 20)
#define MIN_INIT_FLOATS 1024

float *dunlin__program_floats(const dunlin_program *program, const dunlin_arena *arena,
                              uint32_t tensor)
{
    const uint64_t offset = dunlin__persistent_offset(program, tensor);
    assert(offset < arena->committed_bytes);
    return (float *)(void *)(arena->base + offset);
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
    int64_t kernel_area = 1;
    for (int32_t i = 2; is_conv && i < param->shape.n_dims; i++) {
        kernel_area *= param->shape.dims[i];
    }
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

int64_t dunlin__layout_index(const dunlin_net_param *param, int64_t element)
{
    if (param->layout == DUNLIN_PARAM_PLAIN) {
        return element;
    }
    const layout_walk walk = walk_of(param);
    return inner_index(&walk, element);
}

/* Elements of a row that lie one after the other outside: how many, and where the first one is
 * inside; the next are `*out_stride` apart. With taps a run has one element of each input. */
static int64_t next_run(const layout_walk *walk, int64_t element, int64_t n, int64_t *out_place,
                        int64_t *out_stride)
{
    const int64_t left = walk->n_row - element % walk->n_row;
    *out_place = inner_index(walk, element);
    if (walk->kernel_area == 1) {
        *out_stride = walk->n_outputs;
        return left < n ? left : n;
    }
    const int64_t taps = walk->kernel_area - element % walk->n_row % walk->kernel_area;
    *out_stride = walk->n_inputs * walk->n_outputs;
    return taps < n ? taps : n;
}

void dunlin__layout_load(const dunlin_net_param *param, const float *floats, int64_t first,
                         int64_t n, float *out)
{
    if (param->layout == DUNLIN_PARAM_PLAIN) {
        memcpy(out, floats + first, (size_t)n * sizeof *out);
        return;
    }
    const layout_walk walk = walk_of(param);
    for (int64_t done = 0; done < n;) {
        int64_t place = 0;
        int64_t stride = 0;
        const int64_t n_run = next_run(&walk, first + done, n - done, &place, &stride);
        for (int64_t i = 0; i < n_run; i++) {
            out[done + i] = floats[place + i * stride];
        }
        done += n_run;
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
    for (int64_t done = 0; done < n;) {
        int64_t place = 0;
        int64_t stride = 0;
        const int64_t n_run = next_run(&walk, first + done, n - done, &place, &stride);
        for (int64_t i = 0; i < n_run; i++) {
            floats[place + i * stride] = values[done + i];
        }
        done += n_run;
    }
}

/* Where first values go, and the block that they pass through. */
typedef struct init_target {
    const dunlin_program *program;
    const dunlin_arena *arena;
    float *block;
    int64_t block_floats;
} init_target;

static int64_t block_of(const init_target *to, const dunlin_net_param *param)
{
    if (param->layout == DUNLIN_PARAM_PLAIN) {
        return to->block_floats;
    }
    /* Whole rows where one fits: a transposed store is read in stretches. */
    const int64_t n_row = walk_of(param).n_row;
    return n_row <= to->block_floats ? to->block_floats / n_row * n_row : to->block_floats;
}

/* In integers the largest decides on the exponent, so all is read twice. */
static dunlin_status fit_param(const init_target *to, dunlin_param_reader *reader, uint32_t index,
                               dunlin_error *error)
{
    const dunlin_net_param *param = &reader->net->params[index];
    const int64_t n_block = block_of(to, param);
    float largest = 0.0F;
    for (int64_t first = 0; first < param->n_elements; first += n_block) {
        const int64_t left = param->n_elements - first;
        const int64_t n = left < n_block ? left : n_block;
        DUNLIN_TRY(dunlin__param_read(reader, index, first, n, to->block, error));
        for (int64_t i = 0; i < n; i++) {
            largest = fabsf(to->block[i]) > largest ? fabsf(to->block[i]) : largest;
        }
    }
    dunlin__values_fit(to->program, to->arena, index, largest);
    return DUNLIN_OK;
}

static dunlin_status init_param(const init_target *to, dunlin_param_reader *reader, uint32_t index,
                                dunlin_error *error)
{
    const dunlin_net_param *param = &reader->net->params[index];
    const int64_t n_block = block_of(to, param);
    if (dunlin__precision_is_whole(to->program->step->precision)) {
        DUNLIN_TRY(fit_param(to, reader, index, error));
    }
    for (int64_t first = 0; first < param->n_elements; first += n_block) {
        const int64_t left = param->n_elements - first;
        const int64_t n = left < n_block ? left : n_block;
        DUNLIN_TRY(dunlin__param_read(reader, index, first, n, to->block, error));
        dunlin__values_put(to->program, to->arena, reader->net, index, first, n, to->block);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__program_init_weights(const dunlin_program *program, const dunlin_net *net,
                                           uint64_t seed, uint64_t arena_bytes, dunlin_arena *arena,
                                           dunlin_error *error)
{
    const uint64_t persistent = program->lowered.persistent_bytes;
    if (persistent > 0) {
        memset(dunlin__arena_at(arena, 0, persistent), 0, (size_t)persistent);
    }
    /* The pool is idle: large blocks through it cost no byte. */
    float small[MIN_INIT_FLOATS];
    float *block = small;
    uint64_t n_floats = (arena_bytes - persistent) / sizeof(float);
    n_floats = n_floats > MAX_INIT_FLOATS ? MAX_INIT_FLOATS : n_floats;
    if (n_floats > MIN_INIT_FLOATS) {
        block = dunlin__arena_at(arena, persistent, n_floats * sizeof(float));
    } else {
        n_floats = MIN_INIT_FLOATS;
    }
    const init_target target = {
        .program = program, .arena = arena, .block = block, .block_floats = (int64_t)n_floats};
    dunlin_param_reader reader;
    dunlin__param_reader_init(&reader, net, seed);
    dunlin_status status = DUNLIN_OK;
    for (uint32_t i = 0; i < net->n_params && status == DUNLIN_OK; i++) {
        status = init_param(&target, &reader, i, error);
    }
    dunlin__param_reader_close(&reader);
    return status;
}

static bool is_of_kind(const dunlin_net_param *param, dunlin_weights_kind kind)
{
    const dunlin_weights_kind own = param->role == DUNLIN_PARAMETER_STATISTIC
                                        ? DUNLIN_WEIGHTS_STATISTIC
                                        : DUNLIN_WEIGHTS_TRAINABLE;
    return ((uint32_t)own & (uint32_t)kind) != 0;
}

int64_t dunlin__flat_count(const dunlin_net *net, dunlin_weights_kind kind)
{
    int64_t n = 0;
    for (size_t i = 0; i < net->n_params; i++) {
        n += is_of_kind(&net->params[i], kind) ? net->params[i].n_elements : 0;
    }
    return n;
}

dunlin_status dunlin__flat_check(const dunlin_net *net, dunlin_weights_kind kind, int64_t first,
                                 int64_t n, const float *values, dunlin_error *error)
{
    const int64_t total = dunlin__flat_count(net, kind);
    if (kind < DUNLIN_WEIGHTS_TRAINABLE || kind > DUNLIN_WEIGHTS_ALL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0, "%d is no kind of weights",
                            (int)kind);
    }
    if (values == NULL && n > 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "there is no buffer for %" PRId64 " weights", n);
    }
    if (first < 0 || n < 0 || first > total || n > total - first) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "trainer", 0,
                            "weights %" PRId64 " + %" PRId64 " of %" PRId64 " are asked for", first,
                            n, total);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__flat_check_finite(const char *name, int64_t n, const float *values,
                                        dunlin_error *error)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            return dunlin__fail(error, DUNLIN_NUMERIC, "trainer", 0,
                                "element %" PRId64 " of the %" PRId64
                                " values for %.80s is not finite",
                                i, n, name);
        }
    }
    return DUNLIN_OK;
}

dunlin_flat_piece dunlin__flat_piece(const dunlin_net *net, dunlin_weights_kind kind,
                                     int64_t position, int64_t n)
{
    int64_t before = 0;
    for (uint32_t i = 0; i < net->n_params; i++) {
        const dunlin_net_param *param = &net->params[i];
        if (!is_of_kind(param, kind)) {
            continue;
        }
        if (position < before + param->n_elements) {
            const int64_t first = position - before;
            const int64_t left = param->n_elements - first;
            return (dunlin_flat_piece){.param = i, .first = first, .n = left < n ? left : n};
        }
        before += param->n_elements;
    }
    return (dunlin_flat_piece){.n = n};
}
