/*
 * resized.c - an image or a signal of another size: each element the nearest one of the input, or
 * interpolated linearly between two along each axis.
 *
 * Coordinates are ONNX's (operator Resize), from which PyTorch's follow; one before the first
 * element or after the last is that element. They are computed in double, once a call, for every
 * row and column: no instruction set and no slice has others.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct resize_params {
    dunlin_resize_shape shape;
    dunlin_net_resize how;
} resize_params;

/* --- which elements an element is made of --- */

/* The place in the input of element `at` of the output. */
static double place_of(const dunlin_net_resize *how, int64_t at, int32_t in, int32_t out,
                       float factor)
{
    const double given = (double)factor;
    const double scale = given > 0.0 ? given : (double)out / in;
    switch (how->coordinates) {
    case DUNLIN_RESIZE_ASYMMETRIC:
        return given > 0.0 ? (double)at / scale : (double)at * in / out;
    case DUNLIN_RESIZE_ALIGN_CORNERS:
        return out > 1 ? (double)at * (in - 1) / (out - 1) : 0.0;
    case DUNLIN_RESIZE_PYTORCH_HALF_PIXEL:
        return out > 1 ? ((double)at + 0.5) / scale - 0.5 : 0.0;
    case DUNLIN_RESIZE_HALF_PIXEL:
        break;
    }
    return ((double)at + 0.5) / scale - 0.5;
}

static double round_place(const dunlin_net_resize *how, double place)
{
    switch (how->rounding) {
    case DUNLIN_RESIZE_FLOOR:
        return floor(place);
    case DUNLIN_RESIZE_CEIL:
        return ceil(place);
    case DUNLIN_RESIZE_ROUND_PREFER_CEIL:
        return floor(place + 0.5);
    case DUNLIN_RESIZE_ROUND_PREFER_FLOOR:
        break;
    }
    return ceil(place - 0.5);
}

static void fill_taps(const dunlin_net_resize *how, int32_t in, int32_t out, float factor,
                      dunlin_resize_tap *taps)
{
    const double last = (double)in - 1.0;
    for (int32_t i = 0; i < out; i++) {
        double place = place_of(how, i, in, out, factor);
        place = how->is_linear ? place : round_place(how, place);
        place = place < 0.0 ? 0.0 : (place > last ? last : place);
        const int32_t first = (int32_t)place;
        const float share = (float)(place - first);
        const bool has_two = share > 0.0F && first + 1 < in;
        taps[i] = (dunlin_resize_tap){first, has_two ? first + 1 : first, has_two ? share : 0.0F};
    }
}

/* --- kernels --- */

static uint64_t taps_workspace(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                               uint64_t *out_sample_bytes)
{
    (void)kernels;
    (void)n_threads;
    const resize_params *p = params;
    *out_sample_bytes = 0;
    return ((uint64_t)p->shape.out_h + (uint64_t)p->shape.out_w) * sizeof(dunlin_resize_tap);
}

/* Operands: x, y; backward: dy, dx. */
static dunlin_status run_resize(const dunlin_kernel_call *call, bool is_backward)
{
    const resize_params *p = call->params;
    dunlin_resize_tap *rows = call->workspace;
    dunlin_resize_tap *columns = rows + p->shape.out_h;
    fill_taps(&p->how, p->shape.in_h, p->shape.out_h, p->how.factor_h, rows);
    fill_taps(&p->how, p->shape.in_w, p->shape.out_w, p->how.factor_w, columns);
    call->run->kernels->resize(&(dunlin_resize_call){
        .shape = &p->shape,
        .rows = rows,
        .columns = columns,
        .n_samples = call->n_samples,
        .is_backward = is_backward,
        .from = call->operands[0],
        .to = call->operands[1],
        .threads = call->run->threads,
    });
    return DUNLIN_OK;
}

static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    return run_resize(call, false);
}

static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    return run_resize(call, true);
}

static const dunlin_step_kernel forward_kernel = {
    .name = "resize",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = taps_workspace,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "resize_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
    .workspace_fn = taps_workspace,
};

static void emit_resize(dunlin_emit *emit, const dunlin_net_node *node,
                        const dunlin_step_kernel *kernel, const char *suffix, uint32_t from,
                        uint32_t to)
{
    const dunlin_net *net = dunlin__emit_net(emit);
    resize_params params = {.how = node->u.resize};
    dunlin_resize_shape *shape = &params.shape;
    dunlin__value_hwc(&net->values[node->inputs[0]], &shape->in_h, &shape->in_w, &shape->channels);
    dunlin__value_hwc(&net->values[node->output], &shape->out_h, &shape->out_w, &shape->channels);
    shape->is_linear = node->u.resize.is_linear;
    const dunlin_mem_access accesses[] = {
        {from, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {to, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, kernel, suffix, &params, sizeof params, accesses, 2,
                        shape->is_linear ? 8.0 * (double)dunlin__op_elements(emit, node->output)
                                         : 0.0);
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    emit_resize(emit, node, &forward_kernel, "", x, dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (dunlin__emit_needs_grad(emit, node->inputs[0])) {
        const uint32_t dy = dunlin__emit_grad(emit, node->output);
        emit_resize(emit, node, &backward_kernel, "/input_grad", dy,
                    dunlin__emit_grad_target(emit, node->inputs[0]));
    }
}

/* --- the row --- */

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    const dunlin_net_resize *r = &node->u.resize;
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    dunlin_net_value *y = &net->values[node->output];
    const bool is_signal = x->shape.n_dims == 2;
    if (r->out_w < 1 || (!is_signal && r->out_h < 1)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' resizes to %" PRId32 " x %" PRId32 ", not 1 x 1 or more",
                            node->name, r->out_h, r->out_w);
    }
    if (!(r->factor_h >= 0.0F && r->factor_w >= 0.0F && isfinite(r->factor_h) &&
          isfinite(r->factor_w))) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' resizes by %g and %g, not by finite factors above 0",
                            node->name, (double)r->factor_h, (double)r->factor_w);
    }
    const int64_t channels = x->shape.dims[0];
    y->layout = DUNLIN_LAYOUT_IMAGE;
    y->shape = is_signal ? (dunlin_shape){2, {channels, r->out_w}}
                         : (dunlin_shape){3, {channels, r->out_h, r->out_w}};
    return DUNLIN_OK;
}

/* Sizes and factors are read with the constants of the file (convert/rewrite/resizes.c). */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_RESIZE;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    return dunlin__onnx_reject(onnx, "",
                               "only images and signals are resized, along height, width or "
                               "length, to sizes or by factors that are constants");
}

const char *const dunlin__op_resize_coordinates[] = {
    [DUNLIN_RESIZE_HALF_PIXEL] = "half_pixel",
    [DUNLIN_RESIZE_PYTORCH_HALF_PIXEL] = "pytorch_half_pixel",
    [DUNLIN_RESIZE_ALIGN_CORNERS] = "align_corners",
    [DUNLIN_RESIZE_ASYMMETRIC] = "asymmetric",
    NULL,
};

const char *const dunlin__op_resize_roundings[] = {
    [DUNLIN_RESIZE_ROUND_PREFER_FLOOR] = "round_prefer_floor",
    [DUNLIN_RESIZE_ROUND_PREFER_CEIL] = "round_prefer_ceil",
    [DUNLIN_RESIZE_FLOOR] = "floor",
    [DUNLIN_RESIZE_CEIL] = "ceil",
    NULL,
};

int32_t dunlin__op_resize_name(const char *const *names, const char *text)
{
    int32_t i = 0;
    while (names[i] != NULL && strcmp(names[i], text) != 0) {
        i++;
    }
    return names[i] != NULL ? i : -1;
}

/* The batch's size, which is not known, and the rest: what sizes are in ONNX. */
static void write_sizes(dunlin_onnx_writer *writer, const dunlin_net_node *node,
                        const dunlin_shape *y)
{
    dunlin__onnx_begin_node(writer, "Shape", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_attr_int(writer, "end", 1);
    dunlin__onnx_end_part(writer, "/batch");
    dunlin__onnx_begin_node(writer, "Concat", node);
    dunlin__onnx_add_part(writer, "/batch");
    dunlin__onnx_add_ints(writer, "/sample", y->dims, y->n_dims);
    dunlin__onnx_attr_int(writer, "axis", 0);
    dunlin__onnx_end_part(writer, "/sizes");
}

/* The factors along the dimensions of the shape, the batch first; false: sizes say more. */
static bool factors_of(const dunlin_net_resize *r, const dunlin_shape *x, const dunlin_shape *y,
                       float factors[DUNLIN_MAX_DIMS + 1])
{
    bool is_whole = true;
    factors[0] = factors[1] = 1.0F;
    for (int32_t i = 1; i < x->n_dims; i++) {
        const float given = i == x->n_dims - 1 ? r->factor_w : r->factor_h;
        is_whole = is_whole && (given > 0.0F || y->dims[i] % x->dims[i] == 0);
        const int64_t times = y->dims[i] / x->dims[i];
        factors[i + 1] = given > 0.0F ? given : (float)times;
    }
    return is_whole;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_resize *r = &node->u.resize;
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    const dunlin_shape *y = &net->values[node->output].shape;
    float factors[DUNLIN_MAX_DIMS + 1];
    const bool has_factors = factors_of(r, x, y, factors);
    if (!has_factors) {
        write_sizes(writer, node, y);
    }
    dunlin__onnx_begin_node(writer, "Resize", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_param(writer, DUNLIN_NET_NONE); /* no region of interest */
    if (has_factors) {
        dunlin__onnx_add_floats(writer, "/scales", factors, y->n_dims + 1);
    } else {
        dunlin__onnx_add_param(writer, DUNLIN_NET_NONE);
        dunlin__onnx_add_part(writer, "/sizes");
    }
    dunlin__onnx_attr_text(writer, "mode", r->is_linear ? "linear" : "nearest");
    dunlin__onnx_attr_text(writer, "coordinate_transformation_mode",
                           dunlin__op_resize_coordinates[r->coordinates]);
    dunlin__onnx_attr_text(writer, "nearest_mode", dunlin__op_resize_roundings[r->rounding]);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Resize", "Upsample", NULL};

const dunlin_op_row dunlin__op_resize = {
    .kind = DUNLIN_OP_RESIZE,
    .name = "resize",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
