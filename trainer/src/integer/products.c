/*
 * products.c - see products.h: the tensors, ops and ranges of a step's products.
 *
 * Invariant: weights are rounded before anything else of a step runs, so these ops cut no loop over
 * slices; a range that is counted is one that the step's last op moves.
 */
#include "products.h"

#include "ops/common/support.h"

#include <mem/support.h>

static bool is_product(const dunlin_net_node *node)
{
    return node->kind == DUNLIN_OP_CONV || node->kind == DUNLIN_OP_DENSE;
}

dunlin_conv_shape dunlin__product_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    return node->kind == DUNLIN_OP_CONV ? dunlin__op_conv_shape(net, node)
                                        : dunlin__op_dense_shape(net, node);
}

/* --- the table of ranges --- */

static size_t n_ranges_of(const dunlin_precision *precision, const dunlin_net *net,
                          const dunlin_net_node *node)
{
    if (!is_product(node)) {
        return 0;
    }
    const bool is_by_channel = precision->products->weight_errors.is_by_channel;
    const int32_t out_c = dunlin__product_shape(net, node).out_c;
    return DUNLIN_PRODUCT_CHANNELS + (is_by_channel ? (size_t)out_c : 0);
}

size_t dunlin__products_n_ranges(const dunlin_precision *precision, const dunlin_net *net)
{
    size_t n = 1;
    for (size_t i = 0; i < net->n_nodes; i++) {
        n += n_ranges_of(precision, net, &net->nodes[i]);
    }
    return n;
}

dunlin_product *dunlin__product_of(const dunlin_emit *emit)
{
    return &emit->products->nodes[emit->node_index];
}

/* --- opening --- */

static void emit_weights(dunlin_emit *emit, const dunlin_net_node *node)
{
    dunlin_product *product = dunlin__product_of(emit);
    const uint32_t param = node->params[0];
    const dunlin_round_weights_params params = {.n_elements = emit->net->params[param].n_elements,
                                                .operand =
                                                    &emit->products->precision->products->weights};
    product->weights = dunlin__emit_tensor(emit, "/weights_int8", DUNLIN_I8, false,
                                           params.n_elements, DUNLIN_MEM_SAVED);
    product->weights_unit =
        dunlin__emit_tensor(emit, "/weights_unit", DUNLIN_F32, false, 1, DUNLIN_MEM_SAVED);
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_param(emit, param), DUNLIN_MEM_READ, DUNLIN_MEM_FIXED},
        {product->weights, DUNLIN_MEM_WRITE, DUNLIN_MEM_FIXED},
        {product->weights_unit, DUNLIN_MEM_WRITE, DUNLIN_MEM_FIXED},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &dunlin__product_round_weights,
                                             .suffix = "/weights_int8",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = 3,
                                             .flops_fixed = 8.0 * (double)params.n_elements});
}

void dunlin__products_open(dunlin_emit *emit, struct dunlin_products *products)
{
    const dunlin_net *net = emit->net;
    uint32_t first = 0;
    *products = (struct dunlin_products){.precision = emit->options->precision,
                                         .n_nodes = net->n_nodes + 1,
                                         .counts = DUNLIN_STEP_NONE};
    products->nodes =
        dunlin__alloc_zeroed(&emit->graph->alloc, products->n_nodes, sizeof *products->nodes);
    emit->products = products;
    if (products->nodes == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the products of a step");
        return;
    }
    if (emit->options->mode == DUNLIN_EMIT_TRAIN) {
        products->counts = dunlin__emit_named_tensor(
            emit, "ranges", "/counts",
            &(dunlin_step_tensor){.dtype = DUNLIN_I32,
                                  .n_elements =
                                      (int64_t)dunlin__products_n_ranges(products->precision, net) *
                                      DUNLIN_SPREAD_INTS,
                                  .mem_class = DUNLIN_MEM_ACCUMULATOR});
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        products->nodes[i] = (dunlin_product){.first_range = first,
                                              .weights = DUNLIN_STEP_NONE,
                                              .weights_unit = DUNLIN_STEP_NONE,
                                              .values = DUNLIN_STEP_NONE,
                                              .values_unit = DUNLIN_STEP_NONE};
        first += (uint32_t)n_ranges_of(products->precision, net, &net->nodes[i]);
        if (is_product(&net->nodes[i])) {
            emit->node_index = i;
            emit->node_name = net->nodes[i].name;
            emit_weights(emit, &net->nodes[i]);
        }
    }
}

void dunlin__products_close(dunlin_emit *emit)
{
    struct dunlin_products *products = emit->products;
    const dunlin_alloc *alloc = &emit->graph->alloc;
    if (products != NULL) {
        dunlin__free_array(alloc, products->nodes, products->n_nodes, sizeof *products->nodes);
        dunlin__free_array(alloc, products->links, products->links_capacity,
                           sizeof *products->links);
        emit->products = NULL;
    }
}

/* --- rounding --- */

static void add_link(dunlin_emit *emit, const dunlin_product_link *link)
{
    struct dunlin_products *products = emit->products;
    void *links = products->links;
    if (emit->status != DUNLIN_OK) {
        return;
    }
    if (!dunlin__grow_array(&emit->graph->alloc, &links, &products->links_capacity,
                            products->n_links + 1, sizeof *link)) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the ranges of a step");
        return;
    }
    products->links = links;
    products->links[products->n_links++] = *link;
}

dunlin_product_rounded dunlin__product_emit_rounding(dunlin_emit *emit,
                                                     const dunlin_product_rounding *of)
{
    const bool is_counting = emit->products->counts != DUNLIN_STEP_NONE;
    const uint8_t parts = is_counting ? DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE : DUNLIN_MEM_MAP;
    const int64_t n = of->rows_per_sample * of->channels;
    dunlin_round_params params = {
        .link = {.operand = of->operand,
                 .first = of->first_range,
                 .n = of->operand->is_by_channel ? (uint32_t)of->channels : 1},
        .rows_per_sample = of->rows_per_sample,
        .channels = of->channels,
        .units_operand = -1,
        .low_operand = -1,
        .counts_operand = -1,
        .is_training = emit->options->mode == DUNLIN_EMIT_TRAIN,
        .is_backward = emit->is_backward,
        .name = dunlin__step_pool_text(&emit->graph->pool, emit->node_name, "")};
    dunlin_product_rounded out = {
        .tensor = dunlin__emit_tensor(emit, of->suffix, DUNLIN_I8, true, n, of->mem_class),
        .units = DUNLIN_STEP_NONE,
        .low = DUNLIN_STEP_NONE};
    dunlin_mem_access accesses[6] = {
        {of->from, DUNLIN_MEM_READ, parts},
        {out.tensor, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {emit->graph->sites, DUNLIN_MEM_READ, parts},
    };
    uint32_t n_accesses = 3;
    if (params.name == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the graph of a step");
    }
    if (!of->operand->is_by_channel) {
        out.units = dunlin__emit_tensor(emit, "/units", DUNLIN_F32, true, 1, of->mem_class);
        params.units_operand = (int32_t)n_accesses;
        accesses[n_accesses++] = (dunlin_mem_access){out.units, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    }
    if (of->operand->may_widen) {
        out.low = dunlin__emit_tensor(emit, "/low", DUNLIN_I8, true, n, of->mem_class);
        params.low_operand = (int32_t)n_accesses;
        accesses[n_accesses++] = (dunlin_mem_access){out.low, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP};
    }
    if (is_counting) {
        params.counts_operand = (int32_t)n_accesses;
        accesses[n_accesses++] =
            (dunlin_mem_access){emit->products->counts, DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE};
        add_link(emit, &params.link);
    }
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = is_counting ? &dunlin__product_round_counting
                                                                   : &dunlin__product_round,
                                             .suffix = of->suffix,
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = n_accesses,
                                             .flops_per_sample = 8.0 * (double)n});
    return out;
}

/* --- forward --- */

double dunlin__product_flops(const dunlin_conv_shape *s)
{
    return 2.0 * s->out_h * s->out_w * s->out_c * ((double)s->in_c / s->groups) * s->kernel_h *
           s->kernel_w;
}

dunlin_product_params dunlin__product_begin(const dunlin_emit *emit, const dunlin_conv_shape *shape)
{
    const bool is_training = emit->options->mode == DUNLIN_EMIT_TRAIN;
    return (dunlin_product_params){.shape = *shape,
                                   .integers = emit->options->integers,
                                   .batch = is_training ? emit->options->batch : 0};
}

void dunlin__products_forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_conv_shape shape = dunlin__product_shape(emit->net, node);
    dunlin_product *product = dunlin__product_of(emit);
    dunlin_product_params params = dunlin__product_begin(emit, &shape);
    params.has_bias = dunlin__op_has_param(node, 1);
    const dunlin_product_rounding values = {.operand = &emit->products->precision->products->values,
                                            .first_range =
                                                product->first_range + DUNLIN_PRODUCT_VALUES,
                                            .from = dunlin__emit_value(emit, node->inputs[0]),
                                            .rows_per_sample = (int64_t)shape.in_h * shape.in_w,
                                            .channels = shape.in_c,
                                            .suffix = "/int8",
                                            .mem_class = DUNLIN_MEM_ACTIVATION};
    const dunlin_product_rounded x = dunlin__product_emit_rounding(emit, &values);
    product->values = x.tensor;
    product->values_unit = x.units;
    dunlin_mem_access accesses[6] = {
        {product->values, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {product->values_unit, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {product->weights, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {product->weights_unit, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    if (params.has_bias) {
        accesses[5] = (dunlin_mem_access){dunlin__emit_param(emit, node->params[1]),
                                          DUNLIN_MEM_READ, DUNLIN_MEM_MAP};
    }
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &dunlin__product_forward,
                                             .suffix = "",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = params.has_bias ? 6 : 5,
                                             .flops_per_sample = dunlin__product_flops(&shape)});
}

/* --- the end --- */

void dunlin__products_emit_adapt(dunlin_emit *emit)
{
    const struct dunlin_products *products = emit->products;
    if (emit->status != DUNLIN_OK || products->n_links == 0) {
        return;
    }
    const dunlin_product_adapt_params params = {
        .links = dunlin__step_pool_copy(&emit->graph->pool, products->links,
                                        products->n_links * sizeof *products->links),
        .n_links = products->n_links};
    if (params.links == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the ranges of a step");
        return;
    }
    const dunlin_mem_access accesses[] = {
        {emit->graph->sites, DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED},
        {products->counts, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED},
    };
    emit->node_name = "ranges";
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &dunlin__product_adapt,
                                             .suffix = "",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = 2});
}
