/*
 * unary.c - one function of every element: a * x + b, powers, exponentials and logarithms, the
 * activation functions without weights but ReLU and Clip.
 *
 * The gradient is made from the input; where the output tells it as well from that, so that the
 * input dies early.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct unary_params {
    int64_t n_elements; /* per sample */
    dunlin_unary_fn fn;
    float a, b;
} unary_params;

/* Operands: x, y; backward: dy, dx, x or y. */
static dunlin_status run_unary(const dunlin_kernel_call *call, bool is_backward)
{
    const unary_params *p = call->params;
    dunlin_unary_call unary = {
        .fn = p->fn,
        .a = p->a,
        .b = p->b,
        .n = call->n_samples * p->n_elements,
        .x = call->operands[0],
        .out = call->operands[1],
        .threads = call->run->threads,
    };
    if (is_backward) {
        unary.dy = call->operands[0];
        unary.x = call->operands[2];
    }
    call->run->kernels->unary(&unary);
    return DUNLIN_OK;
}

static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    return run_unary(call, false);
}

static dunlin_status run_backward(const dunlin_kernel_call *call)
{
    return run_unary(call, true);
}

static const dunlin_step_kernel forward_kernel = {
    .name = "unary",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static const dunlin_step_kernel backward_kernel = {
    .name = "unary_grad",
    .run_fn = run_backward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = 1,
    .in_place_read = 0,
};

static unary_params node_params(const dunlin_emit *emit, const dunlin_net_node *node)
{
    return (unary_params){.n_elements = dunlin__op_elements(emit, node->output),
                          .fn = node->u.unary.fn,
                          .a = node->u.unary.a,
                          .b = node->u.unary.b};
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const unary_params params = node_params(emit, node);
    const uint32_t x = dunlin__emit_value(emit, node->inputs[0]);
    const uint32_t y = dunlin__emit_output(emit, node->output);
    const dunlin_mem_access accesses[] = {
        {x, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {y, DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__op_emit_map(emit, &forward_kernel, "", &params, sizeof params, accesses, 2,
                        20.0 * (double)params.n_elements);
    dunlin__emit_save(emit, 0, dunlin__unary_is_from_output(params.fn, params.a, params.b) ? y : x);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    if (!dunlin__emit_needs_grad(emit, node->inputs[0])) {
        return;
    }
    const unary_params params = node_params(emit, node);
    const uint32_t dy = dunlin__emit_grad(emit, node->output);
    const dunlin_mem_access accesses[] = {
        {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_grad_target(emit, node->inputs[0]), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
        {dunlin__emit_saved(emit, 0), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
    };
    /* The gradient of a * x + b asks for no value: dy alone is read. */
    const bool is_affine = params.fn == DUNLIN_UNARY_AFFINE;
    const dunlin_mem_access affine[] = {
        accesses[0], accesses[1], {dy, DUNLIN_MEM_READ, DUNLIN_MEM_MAP}};
    unary_params own = params;
    own.b = is_affine ? 0.0F : own.b;
    dunlin__op_emit_map(emit, is_affine ? &forward_kernel : &backward_kernel, "/input_grad", &own,
                        sizeof own, is_affine ? affine : accesses, is_affine ? 2 : 3,
                        30.0 * (double)params.n_elements);
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const float a = node->u.unary.a;
    if (!isfinite(a) || !isfinite(node->u.unary.b)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s': its constants %g and %g must be finite", node->name,
                            (double)a, (double)node->u.unary.b);
    }
    if (node->u.unary.fn == DUNLIN_UNARY_CELU && a == 0.0F) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0, "node '%.120s': its alpha must not be 0",
                            node->name);
    }
    dunlin__op_keep_shape(net, node);
    return DUNLIN_OK;
}

/* A function that is one ONNX node: its type, the attributes that are a and b, ONNX's defaults. */
typedef struct unary_form {
    const char *op; /* NULL: several nodes, or constants as operands */
    const char *names[2];
    float defaults[2];
} unary_form;

static const unary_form forms[] = {
    [DUNLIN_UNARY_TANH] = {.op = "Tanh"},
    [DUNLIN_UNARY_ERF] = {.op = "Erf"},
    [DUNLIN_UNARY_SQRT] = {.op = "Sqrt"},
    [DUNLIN_UNARY_SIGMOID] = {.op = "Sigmoid"},
    [DUNLIN_UNARY_LEAKY_RELU] = {"LeakyRelu", {"alpha", NULL}, {0.01F, 0.0F}},
    [DUNLIN_UNARY_HARD_SIGMOID] = {"HardSigmoid", {"alpha", "beta"}, {0.2F, 0.5F}},
    [DUNLIN_UNARY_HARD_SWISH] = {.op = "HardSwish"},
    [DUNLIN_UNARY_ELU] = {"Elu", {"alpha", NULL}, {1.0F, 0.0F}},
    [DUNLIN_UNARY_SELU] = {"Selu", {"alpha", "gamma"}, {1.6732632F, 1.050701F}},
    [DUNLIN_UNARY_CELU] = {"Celu", {"alpha", NULL}, {1.0F, 0.0F}},
    [DUNLIN_UNARY_SOFTPLUS] = {.op = "Softplus"},
    [DUNLIN_UNARY_SOFTSIGN] = {.op = "Softsign"},
    [DUNLIN_UNARY_ABS] = {.op = "Abs"},
    [DUNLIN_UNARY_EXP] = {.op = "Exp"},
    [DUNLIN_UNARY_LOG] = {.op = "Log"},
    [DUNLIN_UNARY_SIN] = {.op = "Sin"},
    [DUNLIN_UNARY_COS] = {.op = "Cos"},
    [DUNLIN_UNARY_THRESHOLD] = {"ThresholdedRelu", {"alpha", NULL}, {1.0F, 0.0F}},
    [DUNLIN_UNARY_SIGN] = {.op = "Sign"},
};
#define N_FORMS (sizeof forms / sizeof forms[0])

/* The function that this op type is; N_FORMS: none. */
static size_t form_of(const char *op)
{
    size_t fn = 0;
    while (fn < N_FORMS && (forms[fn].op == NULL || strcmp(forms[fn].op, op) != 0)) {
        fn++;
    }
    return fn;
}

static dunlin_status read_gelu(dunlin_onnx_node *onnx, dunlin_net_node *node)
{
    const char *how = dunlin__onnx_text(onnx, "approximate", "none");
    const bool is_tanh = strcmp(how, "tanh") == 0;
    if (!is_tanh && strcmp(how, "none") != 0) {
        return dunlin__onnx_reject(onnx, "approximate", "is '%.40s', not none or tanh", how);
    }
    node->u.unary.fn = is_tanh ? DUNLIN_UNARY_GELU_TANH : DUNLIN_UNARY_GELU;
    return DUNLIN_OK;
}

static dunlin_status read_power(dunlin_onnx_node *onnx, dunlin_net_node *node)
{
    double exponent = 0.0;
    if (!dunlin__onnx_scalar_input(onnx, 1, &exponent)) {
        return dunlin__onnx_reject(onnx, "", "its exponent is not one constant");
    }
    node->u.unary.fn = DUNLIN_UNARY_POWER;
    node->u.unary.a = (float)exponent;
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    node->kind = DUNLIN_OP_UNARY;
    const char *op = dunlin__onnx_op_type(onnx);
    const size_t fn = form_of(op);
    if (fn < N_FORMS) {
        float *const constants[2] = {&node->u.unary.a, &node->u.unary.b};
        node->u.unary.fn = (dunlin_unary_fn)fn;
        for (int i = 0; i < 2; i++) {
            if (forms[fn].names[i] != NULL) {
                *constants[i] = dunlin__onnx_float(onnx, forms[fn].names[i], forms[fn].defaults[i]);
            }
        }
    } else if (strcmp(op, "Gelu") == 0) { /* from opset 20 on */
        DUNLIN_TRY(read_gelu(onnx, node));
    } else if (strcmp(op, "Mish") == 0) { /* from opset 18 on */
        node->u.unary.fn = DUNLIN_UNARY_MISH;
    } else if (strcmp(op, "Neg") == 0) {
        node->u.unary.fn = DUNLIN_UNARY_AFFINE;
        node->u.unary.a = -1.0F;
    } else if (strcmp(op, "Reciprocal") == 0) {
        node->u.unary.fn = DUNLIN_UNARY_POWER;
        node->u.unary.a = -1.0F;
    } else {
        DUNLIN_TRY(read_power(onnx, node));
    }
    return dunlin__op_take_value(onnx, 0, node);
}

/* One ONNX node of one input with its attributes. */
static void write_form(dunlin_onnx_writer *writer, const dunlin_net_node *node)
{
    const unary_form *form = &forms[node->u.unary.fn];
    const float constants[2] = {node->u.unary.a, node->u.unary.b};
    dunlin__onnx_begin_node(writer, form->op, node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    for (int i = 0; i < 2; i++) {
        if (form->names[i] != NULL) {
            dunlin__onnx_attr_float(writer, form->names[i], constants[i]);
        }
    }
    dunlin__onnx_end_node(writer);
}

static void write_power(dunlin_onnx_writer *writer, const dunlin_net_node *node)
{
    const bool is_inverse = node->u.unary.a == -1.0F;
    dunlin__onnx_begin_node(writer, is_inverse ? "Reciprocal" : "Pow", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    if (!is_inverse) {
        dunlin__onnx_add_scalar(writer, "/exponent", node->u.unary.a);
    }
    dunlin__onnx_end_node(writer);
}

/* part = op(the part before, or x; a constant) */
static void write_part(dunlin_onnx_writer *writer, const dunlin_net_node *node, const char *op,
                       const char *from, const char *to, float constant)
{
    dunlin__onnx_begin_node(writer, op, node);
    if (from == NULL) {
        dunlin__onnx_add_value(writer, node->inputs[0]);
    } else {
        dunlin__onnx_add_part(writer, from);
    }
    if (constant != 0.0F) {
        char suffix[32];
        (void)snprintf(suffix, sizeof suffix, "%s/by", to);
        dunlin__onnx_add_scalar(writer, suffix, constant);
    }
    dunlin__onnx_end_part(writer, to);
}

/* y = x * half, half being a part. */
static void write_product(dunlin_onnx_writer *writer, const dunlin_net_node *node, const char *half)
{
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_part(writer, half);
    dunlin__onnx_end_node(writer);
}

static void write_gelu(dunlin_onnx_writer *writer, const dunlin_net_node *node)
{
    if (node->u.unary.fn == DUNLIN_UNARY_GELU) {
        write_part(writer, node, "Mul", NULL, "/scaled", 0.70710678F);
        write_part(writer, node, "Erf", "/scaled", "/erf", 0.0F);
        write_part(writer, node, "Add", "/erf", "/one", 1.0F);
        write_part(writer, node, "Mul", "/one", "/half", 0.5F);
        write_product(writer, node, "/half");
        return;
    }
    write_part(writer, node, "Pow", NULL, "/square", 2.0F);
    write_part(writer, node, "Mul", "/square", "/cubic", 0.044715F);
    write_part(writer, node, "Add", "/cubic", "/sum", 1.0F);
    write_part(writer, node, "Mul", "/sum", "/factor", 0.79788456F);
    dunlin__onnx_begin_node(writer, "Mul", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_part(writer, "/factor");
    dunlin__onnx_end_part(writer, "/inner");
    write_part(writer, node, "Tanh", "/inner", "/tanh", 0.0F);
    write_part(writer, node, "Add", "/tanh", "/one", 1.0F);
    write_part(writer, node, "Mul", "/one", "/half", 0.5F);
    write_product(writer, node, "/half");
}

/* a x + b, without a factor of 1 or a summand of 0. */
static void write_affine(dunlin_onnx_writer *writer, const dunlin_net_node *node)
{
    const float a = node->u.unary.a;
    const float b = node->u.unary.b;
    const bool has_summand = b < 0.0F || b > 0.0F;
    const bool has_factor = !has_summand || a < 1.0F || a > 1.0F;
    if (has_factor) {
        dunlin__onnx_begin_node(writer, "Mul", node);
        dunlin__onnx_add_value(writer, node->inputs[0]);
        dunlin__onnx_add_scalar(writer, "/factor", a);
        if (!has_summand) {
            dunlin__onnx_end_node(writer);
            return;
        }
        dunlin__onnx_end_part(writer, "/product");
    }
    dunlin__onnx_begin_node(writer, "Add", node);
    if (has_factor) {
        dunlin__onnx_add_part(writer, "/product");
    } else {
        dunlin__onnx_add_value(writer, node->inputs[0]);
    }
    dunlin__onnx_add_scalar(writer, "/summand", b);
    dunlin__onnx_end_node(writer);
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    (void)net;
    const dunlin_unary_fn fn = node->u.unary.fn;
    if ((size_t)fn < N_FORMS && forms[fn].op != NULL) {
        write_form(writer, node);
        return;
    }
    if (fn == DUNLIN_UNARY_POWER) {
        write_power(writer, node);
    } else if (fn == DUNLIN_UNARY_GELU || fn == DUNLIN_UNARY_GELU_TANH) {
        write_gelu(writer, node);
    } else if (fn == DUNLIN_UNARY_SILU) {
        write_part(writer, node, "Sigmoid", NULL, "/sigmoid", 0.0F);
        write_product(writer, node, "/sigmoid");
    } else if (fn == DUNLIN_UNARY_ABS_POWER) { /* read again, the two are joined */
        write_part(writer, node, "Abs", NULL, "/size", 0.0F);
        dunlin__onnx_begin_node(writer, "Pow", node);
        dunlin__onnx_add_part(writer, "/size");
        dunlin__onnx_add_scalar(writer, "/exponent", node->u.unary.a);
        dunlin__onnx_end_node(writer);
    } else if (fn == DUNLIN_UNARY_MISH) {
        write_part(writer, node, "Softplus", NULL, "/softplus", 0.0F);
        write_part(writer, node, "Tanh", "/softplus", "/tanh", 0.0F);
        write_product(writer, node, "/tanh");
    } else {
        write_affine(writer, node);
    }
}

static const char *const onnx_names[] = {
    "Tanh",        "Erf",       "Sqrt",       "Pow",  "Gelu", "Sigmoid",  "LeakyRelu",
    "HardSigmoid", "HardSwish", "Elu",        "Selu", "Celu", "Softplus", "Softsign",
    "Mish",        "Abs",       "Exp",        "Log",  "Sin",  "Cos",      "ThresholdedRelu",
    "Sign",        "Neg",       "Reciprocal", NULL};

const dunlin_op_row dunlin__op_unary = {
    .kind = DUNLIN_OP_UNARY,
    .name = "unary",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
