/*
 * builder_pools.c - the builder's pooling, response normalisation, extremes of two values, padding.
 *
 * Invariant: as in builder.c, nothing happens after the first error.
 */
#include "builder.h"
#include "ops/conv/pool_shapes.h"

/* The value; NULL if it is none, or the builder has failed. */
static const dunlin_net_value *value_of(dunlin_builder *builder, dunlin_value input)
{
    const dunlin_net *net = dunlin__builder_net(builder);
    const bool is_there = net != NULL && input >= 0 && (size_t)input < net->n_values;
    return is_there ? &net->values[input] : NULL;
}

static dunlin_value add_pool(dunlin_builder *builder, dunlin_op_kind kind, dunlin_value input,
                             const dunlin_net_pool *pool)
{
    static const char *const names[] = {[DUNLIN_OP_MAX_POOL] = "max_pool",
                                        [DUNLIN_OP_AVERAGE_POOL] = "average_pool",
                                        [DUNLIN_OP_LP_POOL] = "lp_pool"};
    dunlin_net_node *node = dunlin__builder_begin(builder, kind, NULL, names[kind], &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.pool = *pool;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin__builder_pool(dunlin_builder *builder, dunlin_op_kind kind, dunlin_value input,
                                  const dunlin_net_pool *pool)
{
    const dunlin_net_value *x = value_of(builder, input);
    dunlin_net_pool parts[DUNLIN_MAX_POOL_PARTS] = {*pool};
    int n = 1;
    if (kind == DUNLIN_OP_MAX_POOL && x != NULL && (x->shape.n_dims == 2 || x->shape.n_dims == 3)) {
        n = dunlin__op_pool_parts(pool, &x->shape, parts);
        n = n == 0 ? 1 : n; /* the row says what is wrong */
    }
    for (int i = 0; i < n; i++) {
        input = add_pool(builder, kind, input, &parts[i]);
    }
    return input;
}

/* A square window, of a signal one along its length; a stride of 0 is the window's size. */
static dunlin_net_pool square(dunlin_builder *builder, dunlin_value input, int32_t kernel,
                              int32_t stride, int32_t padding)
{
    const dunlin_net_value *x = value_of(builder, input);
    const bool is_signal = x != NULL && x->shape.n_dims == 2;
    const int32_t step = stride == 0 ? kernel : stride;
    return (dunlin_net_pool){
        .kernel_h = is_signal ? 1 : kernel,
        .kernel_w = kernel,
        .stride_h = is_signal ? 1 : step,
        .stride_w = step,
        .pad_top = is_signal ? 0 : padding,
        .pad_left = padding,
        .pad_bottom = is_signal ? 0 : padding,
        .pad_right = padding,
    };
}

dunlin_value dunlin_builder_max_pool(dunlin_builder *builder, dunlin_value input, int32_t kernel,
                                     int32_t stride, int32_t padding)
{
    const dunlin_net_pool pool = square(builder, input, kernel, stride, padding);
    return dunlin__builder_pool(builder, DUNLIN_OP_MAX_POOL, input, &pool);
}

dunlin_value dunlin_builder_average_pool(dunlin_builder *builder, dunlin_value input,
                                         int32_t kernel, int32_t stride, int32_t padding)
{
    dunlin_net_pool pool = square(builder, input, kernel, stride, padding);
    pool.counts_padding = true;
    return dunlin__builder_pool(builder, DUNLIN_OP_AVERAGE_POOL, input, &pool);
}

dunlin_value dunlin_builder_lp_pool(dunlin_builder *builder, dunlin_value input, int32_t p,
                                    int32_t kernel, int32_t stride, int32_t padding)
{
    dunlin_net_pool pool = square(builder, input, kernel, stride, padding);
    pool.p = p;
    return dunlin__builder_pool(builder, DUNLIN_OP_LP_POOL, input, &pool);
}

dunlin_value dunlin_builder_global_max_pool(dunlin_builder *builder, dunlin_value input)
{
    const dunlin_net_value *x = value_of(builder, input);
    dunlin_net_pool pool = {.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
    if (x != NULL && (x->shape.n_dims == 2 || x->shape.n_dims == 3)) {
        pool = dunlin__op_global_window(&x->shape);
    }
    return dunlin__builder_pool(builder, DUNLIN_OP_MAX_POOL, input, &pool);
}

dunlin_value dunlin_builder_local_response_norm(dunlin_builder *builder, dunlin_value input,
                                                int32_t size, float alpha, float beta, float bias)
{
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_RESPONSE_NORM, NULL, "response_norm", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.response_norm.size = size;
    node->u.response_norm.alpha = alpha;
    node->u.response_norm.beta = beta;
    node->u.response_norm.bias = bias;
    return dunlin__builder_end(builder);
}

static dunlin_value add_extreme(dunlin_builder *builder, dunlin_binary_fn fn, const char *kind_name,
                                dunlin_value left, dunlin_value right)
{
    const dunlin_value inputs[2] = {left, right};
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_BINARY, NULL, kind_name, inputs, 2);
    if (node == NULL) {
        return -1;
    }
    node->u.binary.fn = fn;
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_maximum(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    return add_extreme(builder, DUNLIN_BINARY_MAX, "maximum", left, right);
}

dunlin_value dunlin_builder_minimum(dunlin_builder *builder, dunlin_value left, dunlin_value right)
{
    return add_extreme(builder, DUNLIN_BINARY_MIN, "minimum", left, right);
}

// NOLINTNEXTLINE(readability-function-size): one call instead of a struct in every program
dunlin_value dunlin_builder_pad(dunlin_builder *builder, dunlin_value input, int32_t axis,
                                int64_t before, int64_t after, dunlin_padding mode, float value)
{
    if ((unsigned)mode > DUNLIN_PADDING_EDGE) {
        return dunlin__builder_refuse(builder, "no such padding");
    }
    if (!(value - value == 0.0F)) {
        return dunlin__builder_refuse(builder, "what is padded with must be finite");
    }
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_PAD, NULL, "pad", &input, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.pad.axis = axis;
    node->u.pad.before = before;
    node->u.pad.after = after;
    node->u.pad.mode = (dunlin_pad_mode)mode;
    node->u.pad.value = mode == DUNLIN_PADDING_CONSTANT ? value : 0.0F;
    return dunlin__builder_end(builder);
}
