/*
 * arithmetic.c - sums, products, bounds and powers: with one number, with what is stored, and of
 * two activations.
 *
 * Invariant: one number that is no weight becomes a function of each element; what is stored stays
 * one parameter.
 */
#include "constants.h"
#include "fold.h"

#include <math.h>
#include <string.h>

static dunlin_net_node of_value(dunlin_op_kind kind, uint32_t value)
{
    return (dunlin_net_node){.kind = kind, .inputs = {value}, .n_inputs = 1};
}

static void make_affine(dunlin_onnx_node *node, uint32_t side, double a, double b)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, side);
    if (a == 1.0 && b == 0.0) {
        dunlin__onnx_alias(node, input);
        return;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_UNARY, input->index);
    made.u.unary.fn = DUNLIN_UNARY_AFFINE;
    made.u.unary.a = (float)a;
    made.u.unary.b = (float)b;
    dunlin__onnx_finish(node, &made);
}

/* c / x */
static void make_quotient(dunlin_onnx_node *node, double c)
{
    dunlin_net_node made = of_value(DUNLIN_OP_UNARY, dunlin__onnx_value_input(node, 1));
    made.u.unary.fn = DUNLIN_UNARY_POWER;
    made.u.unary.a = -1.0f;
    const uint32_t inverse = dunlin__onnx_make(node, &made, "/inverse");
    if (inverse == DUNLIN_NET_NONE) {
        return;
    }
    made = of_value(DUNLIN_OP_UNARY, inverse);
    made.u.unary.fn = DUNLIN_UNARY_AFFINE;
    made.u.unary.a = (float)c;
    dunlin__onnx_finish(node, &made);
}

static bool is_same_shape(const dunlin_net_value *a, const dunlin_net_value *b)
{
    bool is_same = a->shape.n_dims == b->shape.n_dims;
    for (int32_t i = 0; is_same && i < a->shape.n_dims; i++) {
        is_same = a->shape.dims[i] == b->shape.dims[i];
    }
    return is_same;
}

/* Whole numbers that are stored, such as where each column's rows of a table begin: never trained.
 */
static bool join_whole(dunlin_onnx_node *node, dunlin_binary_fn fn, uint32_t side)
{
    dunlin_constant numbers = {0};
    bool is_exact = dunlin__constant_read(node, side, &numbers);
    for (int64_t i = 0; is_exact && i < numbers.n; i++) {
        is_exact = fabs(numbers.items[i]) <= (double)(1 << 24);
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_BINARY, .n_inputs = 1, .n_params = 1};
    made.u.binary.fn = fn;
    made.u.binary.is_param_left = side == 0;
    made.inputs[0] = dunlin__onnx_value_input(node, 1 - side);
    made.params[0] = is_exact ? dunlin__constant_param(node, "/stored", &numbers) : DUNLIN_NET_NONE;
    dunlin__constant_free(node, &numbers);
    if (made.params[0] != DUNLIN_NET_NONE) {
        dunlin__onnx_finish(node, &made);
    }
    return made.params[0] != DUNLIN_NET_NONE || node->import->is_rejected;
}

/* Two activations, or one and a weight, broadcast. */
static bool make_binary(dunlin_onnx_node *node, dunlin_binary_fn fn)
{
    const dunlin_net_value *left = dunlin__onnx_known_value(node, 0);
    const dunlin_net_value *right = dunlin__onnx_known_value(node, 1);
    dunlin_net_node made = {.kind = DUNLIN_OP_BINARY};
    made.u.binary.fn = fn;
    if (left != NULL && right != NULL) {
        if (fn == DUNLIN_BINARY_ADD && is_same_shape(left, right)) {
            return false; /* the plain sum */
        }
        made.n_inputs = 2;
        made.inputs[0] = dunlin__onnx_value_input(node, 0);
        made.inputs[1] = dunlin__onnx_value_input(node, 1);
        dunlin__onnx_finish(node, &made);
        return true;
    }
    const uint32_t side = left != NULL ? 1 : 0;
    const dunlin_onnx_binding *stored = dunlin__onnx_input(node, side);
    if (left == NULL && right == NULL && stored != NULL && stored->meaning == DUNLIN_ONNX_TENSOR) {
        (void)dunlin__onnx_reject(node, "", "none of its operands is an activation");
        return true;
    }
    if (stored == NULL || stored->meaning != DUNLIN_ONNX_TENSOR || stored->is_transposed) {
        (void)dunlin__onnx_reject(node, "",
                                  "an operand is neither an activation, a weight nor one "
                                  "number");
        return true;
    }
    if (node->import->file->tensors[stored->index].type != DUNLIN_ONNX_FLOAT &&
        fn != DUNLIN_BINARY_DIV && join_whole(node, fn, side)) {
        return true;
    }
    made.params[0] =
        fn == DUNLIN_BINARY_ADD ? dunlin__onnx_finite_param(node, side) : DUNLIN_NET_NONE;
    if (made.params[0] == DUNLIN_NET_NONE) {
        made.params[0] = dunlin__onnx_param_input(node, side);
    }
    if (made.params[0] == DUNLIN_NET_NONE) {
        return true; /* rejected */
    }
    made.n_params = 1;
    made.n_inputs = 1;
    made.inputs[0] = dunlin__onnx_value_input(node, 1 - side);
    made.u.binary.is_param_left = side == 0;
    dunlin__onnx_finish(node, &made);
    return true;
}

static bool two_operands(dunlin_onnx_node *node)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div"};
    int op = 0;
    while (op < 3 && strcmp(ops[op], dunlin__onnx_op_type(node)) != 0) {
        op++;
    }
    double c = 0.0;
    if (dunlin__onnx_known_value(node, 0) != NULL && dunlin__onnx_number_input(node, 1, &c)) {
        make_affine(node, 0, op == 2 ? c : (op == 3 ? 1.0 / c : 1.0),
                    op == 0 ? c : (op == 1 ? -c : 0.0));
    } else if (dunlin__onnx_known_value(node, 1) != NULL &&
               dunlin__onnx_number_input(node, 0, &c)) {
        if (op == 3) {
            make_quotient(node, c);
        } else {
            make_affine(node, 1, op == 1 ? -1.0 : (op == 2 ? c : 1.0), op == 2 ? 0.0 : c);
        }
    } else {
        return make_binary(node, (dunlin_binary_fn)op);
    }
    return true;
}

/* The larger or the smaller of an activation and one number: a clip with one bound. */
static bool bound(dunlin_onnx_node *node)
{
    const bool is_least = strcmp(dunlin__onnx_op_type(node), "Max") == 0;
    double c = 0.0;
    for (uint32_t side = 0; dunlin__onnx_n_inputs(node) == 2 && side < 2; side++) {
        if (dunlin__onnx_known_value(node, side) == NULL ||
            !dunlin__onnx_scalar_input(node, 1 - side, &c)) {
            continue;
        }
        dunlin_net_node made = of_value(DUNLIN_OP_CLIP, dunlin__onnx_value_input(node, side));
        made.u.clip.low = is_least ? (float)c : -HUGE_VALF;
        made.u.clip.high = is_least ? HUGE_VALF : (float)c;
        dunlin__onnx_finish(node, &made);
        return true;
    }
    return false;
}

/* c^x = e^(x log c) */
static bool exponential(dunlin_onnx_node *node)
{
    double c = 0.0;
    if (dunlin__onnx_known_value(node, 1) == NULL || !dunlin__onnx_number_input(node, 0, &c) ||
        !(c > 0.0)) {
        return false;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_UNARY, dunlin__onnx_value_input(node, 1));
    made.u.unary.fn = DUNLIN_UNARY_AFFINE;
    made.u.unary.a = (float)log(c);
    const uint32_t product = dunlin__onnx_make(node, &made, "/product");
    if (product != DUNLIN_NET_NONE) {
        made = of_value(DUNLIN_OP_UNARY, product);
        made.u.unary.fn = DUNLIN_UNARY_EXP;
        dunlin__onnx_finish(node, &made);
    }
    return true;
}

/* What stands in a file as an exponent is a number, unless the file lists it as trained, or what it
 * is for was cut off above 0 (pooling by a trained mean: Radenovic, Tolias, Chum 2018). */
static bool is_trained_exponent(const dunlin_onnx_node *node, const dunlin_onnx_binding *exponent)
{
    const dunlin_net *net = node->import->net;
    const uint32_t maker = dunlin__onnx_known_value(node, 0)->producer;
    const bool is_cut = maker != DUNLIN_NET_NONE && net->nodes[maker].kind == DUNLIN_OP_CLIP &&
                        net->nodes[maker].u.clip.low > 0.0F;
    return exponent->meaning == DUNLIN_ONNX_TENSOR && !exponent->is_transposed &&
           dunlin__constant_may_be_weight(node, exponent) &&
           (is_cut || node->import->bindings[exponent->root].is_listed);
}

/* An exponent that is computed from weights, with as many dimensions as x has; NONE: it is none, or
 * after a failure. */
static uint32_t computed_exponent(dunlin_onnx_node *node, int32_t n_dims)
{
    const uint32_t value = dunlin__onnx_value_input(node, 1);
    const dunlin_net_value *p = dunlin__onnx_known_value(node, 1);
    if (p == NULL || dunlin__onnx_input(node, 1)->place.mix != DUNLIN_ONNX_MIX_SHARED ||
        dunlin__value_elements(p) != 1) {
        return DUNLIN_NET_NONE;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_RESHAPE, value);
    made.u.reshape.shape.n_dims = n_dims;
    for (int32_t d = 0; d < n_dims; d++) {
        made.u.reshape.shape.dims[d] = 1;
    }
    return p->shape.n_dims == n_dims ? value : dunlin__onnx_make(node, &made, "/exponent");
}

/* x^p with a trained p, or one number that is computed from weights: e^(p log x), of positive x. */
static bool power(dunlin_onnx_node *node)
{
    const dunlin_net_value *x = dunlin__onnx_known_value(node, 0);
    const dunlin_onnx_binding *exponent = dunlin__onnx_input(node, 1);
    double c = 0.0;
    if (x == NULL || exponent == NULL || dunlin__onnx_number_input(node, 1, &c)) {
        return false;
    }
    const bool is_value = dunlin__onnx_known_value(node, 1) != NULL;
    const uint32_t computed = is_value ? computed_exponent(node, x->shape.n_dims) : DUNLIN_NET_NONE;
    if (is_value ? computed == DUNLIN_NET_NONE : !is_trained_exponent(node, exponent)) {
        return node->import->is_rejected;
    }
    dunlin_net_node made = of_value(DUNLIN_OP_UNARY, dunlin__onnx_value_input(node, 0));
    made.u.unary.fn = DUNLIN_UNARY_LOG;
    const uint32_t log_x = dunlin__onnx_make(node, &made, "/log");
    made = of_value(DUNLIN_OP_BINARY, log_x);
    made.u.binary.fn = DUNLIN_BINARY_MUL;
    if (is_value) {
        made.inputs[made.n_inputs++] = computed;
    } else {
        made.params[made.n_params++] = dunlin__onnx_param_input(node, 1);
    }
    const bool is_taken =
        log_x != DUNLIN_NET_NONE && (is_value || made.params[0] != DUNLIN_NET_NONE);
    const uint32_t product =
        is_taken ? dunlin__onnx_make(node, &made, "/product") : DUNLIN_NET_NONE;
    if (product != DUNLIN_NET_NONE) {
        made = of_value(DUNLIN_OP_UNARY, product);
        made.u.unary.fn = DUNLIN_UNARY_EXP;
        dunlin__onnx_finish(node, &made);
    }
    return true;
}

static bool any_power(dunlin_onnx_node *node)
{
    return exponential(node) || power(node);
}

bool dunlin__onnx_fold_arithmetic(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Add", two_operands}, {"Sub", two_operands}, {"Mul", two_operands}, {"Div", two_operands},
        {"Max", bound},        {"Min", bound},        {"Pow", any_power},
    };
    return dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
