/*
 * maps.c - see maps.h.
 *
 * Invariant: a walk's strides follow from shapes alone, so its order, and with it every bit, is the
 * network's.
 */
#include "maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

// NOLINTNEXTLINE(readability-function-size): one call instead of a struct in every row
void dunlin__op_emit_map(dunlin_emit *emit, const dunlin_step_kernel *kernel, const char *suffix,
                         const void *params, size_t params_bytes, const dunlin_mem_access *accesses,
                         uint32_t n_accesses, double flops)
{
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = kernel,
                               .suffix = suffix,
                               .params = params,
                               .params_bytes = params_bytes,
                               .accesses = accesses,
                               .n_accesses = n_accesses,
                               .flops_per_sample = flops,
                           });
}

void dunlin__op_keep_shape(dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    dunlin_net_value *y = &net->values[node->output];
    y->shape = x->shape;
    y->layout = x->layout;
}

dunlin_status dunlin__op_want_plain(const dunlin_net *net, const dunlin_net_node *node,
                                    uint32_t index, int32_t n_dims, dunlin_error *error)
{
    const dunlin_net_value *x = &net->values[node->inputs[index]];
    if (x->layout == DUNLIN_LAYOUT_PLAIN && x->shape.n_dims >= n_dims) {
        return DUNLIN_OK;
    }
    char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
    return dunlin__fail(
        error, DUNLIN_MODEL, "net", 0,
        "node '%.80s' needs %" PRId32
        " dimensions or more besides the batch and no image; input %" PRIu32 " is %s%.60s",
        node->name, n_dims, index, x->layout == DUNLIN_LAYOUT_IMAGE ? "an image " : "",
        dunlin__op_shape_text(&x->shape, text));
}

bool dunlin__op_has_param_before(const dunlin_net *net, uint32_t value)
{
    enum { MOST = 256 }; /* what computes ids and masks is far smaller */
    uint32_t stack[MOST];
    uint32_t n = 0;
    uint32_t n_seen = 0;
    stack[n++] = value;
    while (n > 0 && n_seen++ < MOST) {
        const uint32_t producer = net->values[stack[--n]].producer;
        if (producer == DUNLIN_NET_NONE) {
            continue;
        }
        const dunlin_net_node *node = &net->nodes[producer];
        for (uint32_t i = 0; i < node->n_params; i++) {
            if (dunlin__op_has_param(node, i) && !dunlin__param_is_fixed(net, node->params[i])) {
                return true;
            }
        }
        if (n + node->n_inputs > MOST) {
            return true;
        }
        for (uint32_t i = 0; i < node->n_inputs; i++) {
            stack[n++] = node->inputs[i];
        }
    }
    return n > 0;
}

dunlin_shape dunlin__op_stored(const dunlin_net_value *value)
{
    const dunlin_shape *shape = &value->shape;
    if (value->layout != DUNLIN_LAYOUT_IMAGE) {
        return *shape;
    }
    return shape->n_dims == 2 ? (dunlin_shape){2, {shape->dims[1], shape->dims[0]}}
                              : (dunlin_shape){3, {shape->dims[1], shape->dims[2], shape->dims[0]}};
}

int32_t dunlin__op_stored_axis(const dunlin_net_value *value, int32_t axis)
{
    const bool is_image = value->layout == DUNLIN_LAYOUT_IMAGE;
    return is_image ? (axis == 0 ? value->shape.n_dims - 1 : axis - 1) : axis;
}

/* --- walks --- */

/* Operands: out, then what is read. */
static dunlin_status run_walk(const dunlin_kernel_call *call)
{
    const dunlin_walk *walk = call->params;
    dunlin_walk_call run = {
        .walk = walk,
        .n_samples = call->n_samples,
        .out = call->operands[0],
        .is_reset = call->is_first,
        .threads = call->run->threads,
    };
    static const uint8_t n_in[] = {
        [DUNLIN_WALK_COPY] = 1,     [DUNLIN_WALK_ADD] = 2,     [DUNLIN_WALK_SUB] = 2,
        [DUNLIN_WALK_MUL] = 2,      [DUNLIN_WALK_DIV] = 2,     [DUNLIN_WALK_DIV_GRAD] = 3,
        [DUNLIN_WALK_ABS] = 1,      [DUNLIN_WALK_SIGN] = 2,    [DUNLIN_WALK_ROOT] = 1,
        [DUNLIN_WALK_UNIT] = 3,     [DUNLIN_WALK_EXP_SUB] = 2, [DUNLIN_WALK_LOG_ADD] = 2,
        [DUNLIN_WALK_EXP_GRAD] = 3, [DUNLIN_WALK_EQUAL] = 2,   [DUNLIN_WALK_PICK] = 3,
        [DUNLIN_WALK_MAX] = 2,      [DUNLIN_WALK_MIN] = 2,     [DUNLIN_WALK_MAX_GRAD] = 3,
    };
    for (uint32_t i = 0; i < n_in[walk->fn]; i++) {
        run.in[i] = call->operands[1 + i];
    }
    call->run->kernels->walk(&run);
    return DUNLIN_OK;
}

static const dunlin_step_kernel walk_kernel = {
    .name = "walk",
    .run_fn = run_walk,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

/* The first operand lies as the output does. */
static const dunlin_step_kernel walk_in_place_kernel = {
    .name = "walk_in_place",
    .run_fn = run_walk,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 0,
    .in_place_read = 1,
};

static const dunlin_step_kernel walk_sum_kernel = {
    .name = "walk_sum",
    .run_fn = run_walk,
    .parts = DUNLIN_MEM_REDUCE,
    .may_recompute = false,
    .in_place_write = -1,
    .in_place_read = -1,
};

dunlin_op_place dunlin__op_place_of(const dunlin_emit *emit, uint32_t value, uint32_t tensor)
{
    const dunlin_net_value *of = &dunlin__emit_net(emit)->values[value];
    return (dunlin_op_place){
        .tensor = tensor, .shape = &of->shape, .is_image = of->layout == DUNLIN_LAYOUT_IMAGE};
}

dunlin_op_place dunlin__op_param_place(const dunlin_emit *emit, uint32_t param, uint32_t tensor)
{
    return (dunlin_op_place){
        .tensor = tensor, .shape = &dunlin__emit_net(emit)->params[param].shape, .is_fixed = true};
}

dunlin_walk dunlin__walk_over(const dunlin_shape *shape, dunlin_walk_fn fn)
{
    dunlin_walk walk = {.fn = fn, .n_dims = shape->n_dims, .factor = 1.0F};
    memcpy(walk.dims, shape->dims, sizeof walk.dims);
    return walk;
}

void dunlin__walk_operand(const dunlin_walk *walk, const dunlin_shape *shape, bool is_fixed,
                          dunlin_walk_operand *out_operand)
{
    *out_operand = (dunlin_walk_operand){0};
    int64_t stride = 1;
    /* A parameter may have dimensions of 1 in front of the walk's. */
    for (int32_t i = 1; i <= shape->n_dims; i++) {
        const int64_t size = shape->dims[shape->n_dims - i];
        if (i <= walk->n_dims && size > 1) {
            out_operand->strides[walk->n_dims - i] = stride;
        }
        stride *= size;
    }
    out_operand->sample_stride = is_fixed ? 0 : stride;
}

/* The same of an image: the channels of a pixel lie together. */
static void image_operand(const dunlin_shape *shape, dunlin_walk_operand *out_operand)
{
    *out_operand = (dunlin_walk_operand){0};
    int64_t stride = 1;
    for (int32_t i = 0; i < shape->n_dims; i++) {
        const int32_t dim = i == 0 ? 0 : shape->n_dims - i;
        out_operand->strides[dim] = shape->dims[dim] > 1 ? stride : 0;
        stride *= shape->dims[dim];
    }
    out_operand->sample_stride = stride;
}

static void place_operand(const dunlin_walk *walk, const dunlin_op_place *place,
                          dunlin_walk_operand *out_operand)
{
    if (place->is_image) {
        image_operand(place->shape, out_operand);
    } else {
        dunlin__walk_operand(walk, place->shape, place->is_fixed, out_operand);
    }
}

/* The first dimension becomes the last one: (C, H, W) is gone through as an image lies. */
static void turn_walk(dunlin_walk *walk)
{
    int64_t *dims[] = {walk->dims, walk->in[0].strides, walk->in[1].strides, walk->in[2].strides,
                       walk->out.strides};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        const int64_t first = dims[i][0];
        memmove(dims[i], dims[i] + 1, (size_t)(walk->n_dims - 1) * sizeof first);
        dims[i][walk->n_dims - 1] = first;
    }
}

static bool is_joined(const dunlin_walk_operand *operand, int32_t outer, int64_t inner_size)
{
    return operand->strides[outer] == operand->strides[outer + 1] * inner_size;
}

static void drop_dim(dunlin_walk *walk, int32_t dim)
{
    dunlin_walk_operand *operands[4] = {&walk->in[0], &walk->in[1], &walk->in[2], &walk->out};
    for (int32_t i = dim; i + 1 < walk->n_dims; i++) {
        walk->dims[i] = walk->dims[i + 1];
        for (int k = 0; k < 4; k++) {
            operands[k]->strides[i] = operands[k]->strides[i + 1];
        }
    }
    walk->n_dims--;
}

void dunlin__walk_merge(dunlin_walk *walk)
{
    for (int32_t i = walk->n_dims - 1; i >= 0; i--) {
        if (walk->dims[i] == 1 && walk->n_dims > 1) {
            drop_dim(walk, i);
        }
    }
    for (int32_t i = walk->n_dims - 2; i >= 0; i--) {
        const int64_t inner = walk->dims[i + 1];
        if (is_joined(&walk->in[0], i, inner) && is_joined(&walk->in[1], i, inner) &&
            is_joined(&walk->in[2], i, inner) && is_joined(&walk->out, i, inner)) {
            walk->dims[i + 1] *= walk->dims[i];
            drop_dim(walk, i);
        }
    }
    if (walk->n_dims == 0) {
        walk->n_dims = 1;
        walk->dims[0] = 1;
    }
}

/* Each element of the walk has one of its own in the output. */
static bool is_one_to_one(const dunlin_walk *walk)
{
    for (int32_t i = 0; i < walk->n_dims; i++) {
        if (walk->dims[i] > 1 && walk->out.strides[i] == 0) {
            return false;
        }
    }
    return true;
}

void dunlin__op_emit_strided(dunlin_emit *emit, const char *suffix, dunlin_walk *walk,
                             const uint32_t *tensors, uint32_t n_in)
{
    const bool is_reduced = walk->out.sample_stride == 0;
    walk->is_sum = is_reduced || !is_one_to_one(walk);
    dunlin__walk_merge(walk);
    const bool is_alike = !walk->is_sum && memcmp(&walk->in[0], &walk->out, sizeof walk->out) == 0;
    const uint8_t parts = is_reduced ? DUNLIN_MEM_REDUCE : DUNLIN_MEM_MAP;
    dunlin_mem_access accesses[4] = {
        {tensors[n_in], is_reduced ? DUNLIN_MEM_ACCUMULATE : DUNLIN_MEM_WRITE, parts},
    };
    for (uint32_t i = 0; i < n_in; i++) {
        accesses[1 + i] = (dunlin_mem_access){tensors[i], DUNLIN_MEM_READ, parts};
    }
    double flops = 1.0;
    for (int32_t i = 0; i < walk->n_dims; i++) {
        flops *= (double)walk->dims[i];
    }
    const dunlin_step_kernel *kernel = is_reduced ? &walk_sum_kernel
                                       : is_alike ? &walk_in_place_kernel
                                                  : &walk_kernel;
    dunlin__op_emit_map(emit, kernel, suffix, walk, sizeof *walk, accesses, 1 + n_in, flops);
}

void dunlin__op_emit_walk(dunlin_emit *emit, const char *suffix, dunlin_walk *walk,
                          const dunlin_op_place *in, uint32_t n_in, const dunlin_op_place *out)
{
    uint32_t tensors[4];
    bool has_image = out->is_image;
    for (uint32_t i = 0; i < n_in; i++) {
        place_operand(walk, &in[i], &walk->in[i]);
        tensors[i] = in[i].tensor;
        has_image = has_image || in[i].is_image;
    }
    place_operand(walk, out, &walk->out);
    tensors[n_in] = out->tensor;
    if (has_image) {
        turn_walk(walk);
    }
    walk->n_out = 1;
    for (int32_t i = 0; i < out->shape->n_dims; i++) {
        walk->n_out *= out->shape->dims[i];
    }
    dunlin__op_emit_strided(emit, suffix, walk, tensors, n_in);
}
