/*
 * dropout.c - drops activations in training (Srivastava et al. 2014), or all of a sample's at once
 * (stochastic depth, Huang et al. 2016), scaling up those that stay.
 *
 * Invariant: what is dropped depends on (seed, step, node, sample of the batch, element) alone, so
 * no mask is stored: forward, backward and recomputation of any slice draw the same one.
 */
#include "ops/common/support.h"

#include <mem/support.h>

typedef struct dropout_params {
    int64_t n_elements; /* per sample */
    uint64_t node_index;
    float ratio;
    bool is_whole;
} dropout_params;

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection that mixes well. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint64_t mask_key(const dunlin_step_run *run, uint64_t node_index)
{
    const uint64_t gamma = UINT64_C(0x9E3779B97F4A7C15); /* a seed of 0 must not stay 0 */
    uint64_t key = mix(run->seed + gamma);
    key = mix(key + (uint64_t)run->step + gamma);
    return mix(key + node_index + gamma);
}

/* A sample times 0 or 1 / (1 - ratio): what a single element of it would draw. */
static void drop_samples(const dunlin_kernel_call *call, const dropout_params *p, uint64_t key)
{
    const dunlin_kernels *kernels = call->run->kernels;
    const float *x = call->operands[0];
    float *y = call->operands[1];
    dunlin_walk walk = {.fn = DUNLIN_WALK_COPY, .n_dims = 1, .dims = {p->n_elements}};
    walk.in[0].strides[0] = 1;
    walk.out.strides[0] = 1;
    walk.out.sample_stride = p->n_elements;
    walk.n_out = p->n_elements;
    for (int64_t i = 0; i < call->n_samples; i++) {
        const float one = 1.0F;
        kernels->dropout(call->first_sample + i, 1, 1, p->ratio, key, &one, &walk.factor, NULL);
        kernels->walk(&(dunlin_walk_call){.walk = &walk,
                                          .n_samples = 1,
                                          .in = {x + i * p->n_elements},
                                          .out = y + i * p->n_elements,
                                          .threads = call->run->threads});
    }
}

/* Operands: x, y; backward the same on the gradients. */
static dunlin_status run_dropout(const dunlin_kernel_call *call)
{
    const dropout_params *p = call->params;
    const uint64_t key = mask_key(call->run, p->node_index);
    if (p->is_whole) {
        drop_samples(call, p, key);
        return DUNLIN_OK;
    }
    call->run->kernels->dropout(call->first_sample, call->n_samples, p->n_elements, p->ratio, key,
                                call->operands[0], call->operands[1], call->run->threads);
    return DUNLIN_OK;
}

static const dunlin_step_kernel dropout_kernel = {
    .name = "dropout",
    .run_fn = run_dropout,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static void emit_dropout(dunlin_emit *emit, const dunlin_net_node *node, const char *suffix,
                         uint32_t from, uint32_t to)
{
    const dunlin_net *net = dunlin__emit_net(emit);
    dropout_params params = {
        .n_elements = dunlin__op_elements(emit, node->output),
        .node_index = (uint64_t)net->values[node->output].producer,
        .ratio = node->u.dropout.ratio,
        .is_whole = node->u.dropout.is_whole,
    };
    const dunlin_mem_access accesses[] = {
        {from, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {to, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(
        emit, &(dunlin_emit_op){
                  .kernel = &dropout_kernel,
                  .suffix = suffix,
                  .params = &params,
                  .params_bytes = sizeof params,
                  .accesses = accesses,
                  .n_accesses = 2,
                  .flops_per_sample = (params.is_whole ? 1.0 : 10.0) * (double)params.n_elements,
              });
}

static bool drops(const dunlin_emit *emit, const dunlin_net_node *node)
{
    return dunlin__emit_mode(emit) == DUNLIN_EMIT_TRAIN && node->u.dropout.ratio > 0.0F;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    if (!drops(emit, node)) {
        dunlin__emit_alias(emit, node->output, x);
        return;
    }
    emit_dropout(emit, node, "", x, dunlin__emit_output(emit, node->output));
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    uint32_t dy = dunlin__emit_grad(emit, node->output);
    if (!drops(emit, node)) {
        dunlin__emit_grad_alias(emit, node->inputs[0], dy);
        return;
    }
    emit_dropout(emit, node, "/input_grad", dy, dunlin__emit_grad_target(emit, node->inputs[0]));
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    if (!(node->u.dropout.ratio >= 0.0F && node->u.dropout.ratio < 1.0F)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' drops with probability %g, not in [0, 1)", node->name,
                            (double)node->u.dropout.ratio);
    }
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    dunlin_net_value *y = &net->values[node->output];
    y->shape = x->shape;
    y->layout = x->layout;
    return DUNLIN_OK;
}

/* Whether it drops is the trainer's mode, not the file's: training_mode is read over. */
static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_DROPOUT;
    double ratio = 0.5;
    if (dunlin__onnx_has_input(onnx, 1) && !dunlin__onnx_scalar_input(onnx, 1, &ratio)) {
        return dunlin__onnx_reject(onnx, "ratio", "is not a constant");
    }
    if (!(ratio >= 0.0 && ratio < 1.0)) {
        return dunlin__onnx_reject(onnx, "ratio", "is %g, not in [0, 1)", ratio);
    }
    node->u.dropout.ratio = (float)ratio;
    return dunlin__op_take_value(onnx, 0, node);
}

/*
 * Ones in the shape (N, 1, ...), dropped, times the value: ONNX has no operator for it, and whoever
 * runs the file decides, as of a dropout, whether it is training.
 */
static void write_whole(dunlin_onnx_writer *writer, const dunlin_net *net,
                        const dunlin_net_node *node)
{
    static const int64_t ones[DUNLIN_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t first = 0;
    dunlin__onnx_begin_node(writer, "Shape", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_end_part(writer, "/shape");
    dunlin__onnx_begin_node(writer, "Gather", node);
    dunlin__onnx_add_part(writer, "/shape");
    dunlin__onnx_add_ints(writer, "/first", &first, 1);
    dunlin__onnx_end_part(writer, "/n");
    dunlin__onnx_begin_node(writer, "Concat", node);
    dunlin__onnx_add_part(writer, "/n");
    dunlin__onnx_add_ints(writer, "/ones", ones, net->values[node->output].shape.n_dims);
    dunlin__onnx_attr_int(writer, "axis", 0);
    dunlin__onnx_end_part(writer, "/sizes");
    dunlin__onnx_begin_node(writer, "Expand", node);
    dunlin__onnx_add_scalar(writer, "/one", 1.0F);
    dunlin__onnx_add_part(writer, "/sizes");
    dunlin__onnx_end_part(writer, "/whole");
    dunlin__onnx_begin_node(writer, "Dropout", node);
    dunlin__onnx_add_part(writer, "/whole");
    dunlin__onnx_add_scalar(writer, "/ratio", node->u.dropout.ratio);
    dunlin__onnx_end_part(writer, "/kept");
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_part(writer, "/kept");
    dunlin__onnx_end_node(writer);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    if (node->u.dropout.is_whole) {
        write_whole(writer, net, node);
        return;
    }
    dunlin__onnx_begin_node(writer, "Dropout", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_scalar(writer, "/ratio", node->u.dropout.ratio);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"Dropout", NULL};

const dunlin_op_row dunlin__op_dropout = {
    .kind = DUNLIN_OP_DROPOUT,
    .name = "dropout",
    .onnx_names = onnx_names,
    .bounds = DUNLIN_BOUNDS_OF_ZERO,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
