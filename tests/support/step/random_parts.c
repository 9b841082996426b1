/*
 * random_parts.c - see random_parts.h.
 */
#include "random_parts.h"

#include "model/builder/builder.h"

#include <criterion/criterion.h>

#define MOST_SIZE 64

dunlin_value random_dilated_max_pool(dunlin_builder *builder, dunlin_value x, bool is_signal)
{
    const dunlin_net_pool pool = {.kernel_h = is_signal ? 1 : 2,
                                  .kernel_w = 2,
                                  .stride_h = 1,
                                  .stride_w = 1,
                                  .dilation_h = is_signal ? 1 : 2,
                                  .dilation_w = 2};
    return dunlin__builder_pool(builder, DUNLIN_OP_MAX_POOL, x, &pool);
}

static dunlin_net_node *begin(dunlin_builder *builder, dunlin_op_kind kind, const char *name,
                              dunlin_value x)
{
    dunlin_net_node *node = dunlin__builder_begin(builder, kind, NULL, name, &x, 1);
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert(node != NULL || dunlin_builder_finish(builder, x, &model, &error) != DUNLIN_OK, "%s",
              error.text);
    cr_assert_not_null(node, "%s: %s", name, error.text);
    return node;
}

dunlin_value random_sign(dunlin_builder *builder, dunlin_value x)
{
    dunlin_net_node *node = begin(builder, DUNLIN_OP_UNARY, "sign", x);
    node->u.unary.fn = DUNLIN_UNARY_SIGN;
    const dunlin_value size = dunlin_builder_multiply(builder, x, dunlin__builder_end(builder));
    return dunlin_builder_multiply(builder, size, dunlin_builder_tanh(builder, x));
}

/* A parameter of the node under construction that never changes. */
static void add_fixed(dunlin_builder *builder, const char *name, const char *suffix,
                      const dunlin_shape *shape, const float *values, int64_t n)
{
    dunlin_net_param *param = dunlin__builder_param(builder, 0, name, suffix, shape);
    cr_assert_not_null(param);
    param->n_elements = n;
    param->is_fixed_by_file = true;
    dunlin_net *net = dunlin__builder_net(builder);
    cr_assert(dunlin__net_set_values(net, (uint32_t)(net->n_params - 1), values));
}

/* x where the element's remainder by three is zero, or (`is_rest`) where it is not. */
static dunlin_value masked(dunlin_builder *builder, const char *name, const char *suffix,
                           dunlin_value x, int64_t size, bool is_rest)
{
    const dunlin_shape shape = {1, {size}};
    float values[MOST_SIZE];
    dunlin_net_node *node = begin(builder, DUNLIN_OP_BINARY, "where", x);
    node->u.binary.fn = DUNLIN_BINARY_MUL;
    for (int64_t i = 0; i < size; i++) {
        values[i] = (i % 3 == 0) != is_rest ? 1.0F : 0.0F;
    }
    add_fixed(builder, name, suffix, &shape, values, size);
    return dunlin__builder_end(builder);
}

dunlin_value random_where(dunlin_builder *builder, const char *name, dunlin_value left,
                          dunlin_value right, int64_t size)
{
    cr_assert_leq(size, MOST_SIZE);
    left = masked(builder, name, "left", left, size, false);
    return dunlin_builder_add(builder, left, masked(builder, name, "right", right, size, true));
}

dunlin_value random_every_second(dunlin_builder *builder, dunlin_value x, const dunlin_shape *shape)
{
    const int64_t n = shape->dims[1] / 2;
    const int64_t width = shape->dims[2];
    const bool is_signal = shape->n_dims == 2;
    const dunlin_shape even = {shape->n_dims, {shape->dims[0], 2 * n, width}};
    const dunlin_shape pairs = {shape->n_dims + 1, {shape->dims[0], n, 2, width}};
    const dunlin_shape firsts = {pairs.n_dims, {shape->dims[0], n, 1, width}};
    x = shape->dims[1] == 2 * n ? x : dunlin_builder_slice(builder, x, 1, 0, 2 * n);
    dunlin_net_node *node = begin(builder, DUNLIN_OP_REARRANGE, "pairs", x);
    node->u.rearrange.to = (dunlin_rearrangement){even, {0, 1, 2}, pairs};
    x = dunlin_builder_slice(builder, dunlin__builder_end(builder), 2, 0, 1);
    node = begin(builder, DUNLIN_OP_REARRANGE, "steps", x);
    node->u.rearrange.is_image = true;
    if (is_signal) {
        node->u.rearrange.to = (dunlin_rearrangement){firsts, {0, 1, 2}, {2, {shape->dims[0], n}}};
    } else {
        node->u.rearrange.to =
            (dunlin_rearrangement){firsts, {0, 3, 1, 2}, {3, {shape->dims[0], width, n}}};
    }
    return dunlin__builder_end(builder);
}

dunlin_value random_rows(dunlin_builder *builder, const char *name, dunlin_value x, int64_t n_rows,
                         int64_t width)
{
    float ids[MOST_SIZE];
    const dunlin_shape shape = {2, {1, n_rows}};
    const dunlin_shape table = {2, {n_rows + 2, width}};
    cr_assert_leq(n_rows, MOST_SIZE);
    for (int64_t i = 0; i < n_rows; i++) {
        ids[i] = (float)((i * i + 1) % (n_rows + 2)); /* some rows twice, some never */
    }
    const dunlin_value input = (dunlin_value)dunlin__builder_net(builder)->input;
    (void)begin(builder, DUNLIN_OP_EXPAND, "order", input);
    add_fixed(builder, name, "ids", &shape, ids, n_rows);
    (void)begin(builder, DUNLIN_OP_EMBEDDING, "stored_rows", dunlin__builder_end(builder));
    dunlin_net_param *param = dunlin__builder_param(builder, 0, name, "table", &table);
    cr_assert_not_null(param);
    param->origin = DUNLIN_PARAM_UNIFORM;
    param->bound = 0.5F;
    return dunlin_builder_add(builder, x, dunlin__builder_end(builder));
}
