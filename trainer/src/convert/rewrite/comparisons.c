/*
 * comparisons.c - masks that are made of an input: ids that are compared with the padding's, joined
 * and negated, and a choice by such a mask.
 *
 * Invariant: a mask's elements are 0 and 1, as float32. x == c is 1 - |sign(x - c)|, which is
 * exact; x where the mask lets it through, else c, is x m + c (1 - m): the same numbers while x is
 * finite. Infinity becomes the largest float, whose negative hides a score as well.
 */
#include "constants.h"

#include <mem/support.h>

#include <float.h>
#include <math.h>
#include <string.h>

/* --- steps --- */

/* Steps that make one of the node's values after the other. */
typedef struct steps {
    dunlin_onnx_node *node;
    uint32_t value; /* of the last one; DUNLIN_NET_NONE: the node was rejected, or a failure */
} steps;

static void step(steps *s, dunlin_net_node *made, const char *suffix)
{
    if (s->value != DUNLIN_NET_NONE) {
        made->inputs[0] = s->value;
        made->n_inputs = made->n_inputs > 1 ? made->n_inputs : 1;
        s->value = dunlin__onnx_make(s->node, made, suffix);
    }
}

/* f(x) with f of one element. */
static void apply(steps *s, dunlin_unary_fn fn, double a, double b, const char *suffix)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_UNARY};
    made.u.unary.fn = fn;
    made.u.unary.a = (float)a;
    made.u.unary.b = (float)b;
    step(s, &made, suffix);
}

static void affine(steps *s, double a, double b, const char *suffix)
{
    const bool is_nothing = a == 1.0 && b == 0.0 && suffix[0] != '\0';
    if (!is_nothing) {
        apply(s, DUNLIN_UNARY_AFFINE, a, b, suffix);
    }
}

/* The value and another one. */
static void join(steps *s, dunlin_binary_fn fn, uint32_t other, const char *suffix)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_BINARY, .n_inputs = 2};
    made.inputs[1] = other;
    const dunlin_net *net = s->node->import->net;
    if (s->value == DUNLIN_NET_NONE || other == DUNLIN_NET_NONE) {
        s->value = DUNLIN_NET_NONE;
        return;
    }
    const dunlin_shape *x = &net->values[s->value].shape;
    const dunlin_shape *y = &net->values[other].shape;
    if (fn == DUNLIN_BINARY_ADD && x->n_dims == y->n_dims &&
        memcmp(x->dims, y->dims, (size_t)x->n_dims * sizeof x->dims[0]) == 0) {
        made.kind = DUNLIN_OP_ADD; /* as it would be read again */
    } else {
        made.u.binary.fn = fn;
    }
    step(s, &made, suffix);
}

/* The last value is the node's output; a mask, if it is said to be one. */
static bool finish(const steps *s, bool is_mask)
{
    if (s->value != DUNLIN_NET_NONE) {
        dunlin__onnx_check_attributes(s->node);
        dunlin__onnx_bind_value(s->node, s->value);
        dunlin__onnx_output(s->node, 0)->is_mask = is_mask;
    }
    return true;
}

/* --- comparisons --- */

static void bound(steps *s, const char *suffix)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_CLIP};
    made.u.clip.low = 0.0F;
    made.u.clip.high = 1.0F;
    step(s, &made, suffix);
}

/* Of the difference of the operands: is it 0, or above 0? Negated or not. */
static bool tell(steps *s, bool is_about_zero, bool is_negated)
{
    apply(s, DUNLIN_UNARY_SIGN, 0.0, 0.0, "/sign");
    if (is_about_zero) {
        apply(s, DUNLIN_UNARY_ABS, 0.0, 0.0, is_negated ? "/differs" : "");
    } else {
        bound(s, is_negated ? "/above" : "");
    }
    if (is_negated) {
        affine(s, -1.0, 1.0, "");
    }
    return finish(s, true);
}

/* The left operand minus the right one, or the other way; false if they cannot be compared. */
static bool subtract(dunlin_onnx_node *node, bool is_turned, steps *out)
{
    double number = 0.0;
    *out = (steps){.node = node};
    for (uint32_t side = 0; side < 2; side++) {
        const double sign = (side == 0) == is_turned ? -1.0 : 1.0;
        if (dunlin__onnx_known_value(node, side) == NULL ||
            !dunlin__onnx_number_input(node, 1 - side, &number)) {
            continue;
        }
        out->value = dunlin__onnx_value_input(node, side);
        affine(out, sign, -sign * number, "/less");
        return isfinite(number);
    }
    if (dunlin__onnx_known_value(node, 0) == NULL || dunlin__onnx_known_value(node, 1) == NULL) {
        return false;
    }
    out->value = dunlin__onnx_value_input(node, is_turned ? 1 : 0);
    join(out, DUNLIN_BINARY_SUB, dunlin__onnx_value_input(node, is_turned ? 0 : 1), "/less");
    return true;
}

static bool compare(dunlin_onnx_node *node)
{
    static const struct {
        const char *op_type;
        bool is_turned, is_about_zero, is_negated;
    } kinds[] = {{"Equal", false, true, true},
                 {"Greater", false, false, false},
                 {"Less", true, false, false},
                 {"GreaterOrEqual", true, false, true},
                 {"LessOrEqual", false, false, true}};
    size_t i = 0;
    while (i < 4 && strcmp(kinds[i].op_type, dunlin__onnx_op_type(node)) != 0) {
        i++;
    }
    if (dunlin__onnx_known_value(node, 0) == NULL && dunlin__onnx_known_value(node, 1) == NULL) {
        return false;
    }
    steps s;
    if (!subtract(node, kinds[i].is_turned, &s)) {
        (void)dunlin__onnx_reject(node, "",
                                  "only activations are compared, with each other or with one "
                                  "finite number");
        return true;
    }
    return tell(&s, kinds[i].is_about_zero, kinds[i].is_negated);
}

bool dunlin__onnx_make_mask(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input->is_mask) {
        dunlin__onnx_alias(node, input);
        return true;
    }
    steps s = {.node = node, .value = input->index};
    return tell(&s, true, false);
}

/* --- masks of masks --- */

static bool negate(dunlin_onnx_node *node)
{
    steps s = {.node = node, .value = dunlin__onnx_value_input(node, 0)};
    affine(&s, -1.0, 1.0, "");
    return finish(&s, true);
}

/* One of a stored mask and one that is made: their product or the larger one. */
static bool join_stored_mask(dunlin_onnx_node *node, uint32_t side, bool is_and)
{
    dunlin_constant stored = {0};
    dunlin_net_node made = {.kind = DUNLIN_OP_BINARY, .n_inputs = 1, .n_params = 1};
    steps s = {.node = node, .value = dunlin__onnx_value_input(node, side)};
    made.u.binary.fn = is_and ? DUNLIN_BINARY_MUL : DUNLIN_BINARY_MAX;
    if (!dunlin__constant_read(node, 1 - side, &stored) || stored.is_part || stored.n == 0) {
        (void)dunlin__onnx_reject(node, "", "an operand is neither a mask nor a stored one");
        dunlin__constant_free(node, &stored);
        return true;
    }
    if (stored.n == 1) {
        const double set = stored.items[0] != 0.0 ? 1.0 : 0.0;
        affine(&s, is_and ? set : 1.0 - set, is_and ? 0.0 : set, "");
    } else {
        for (int64_t i = 0; i < stored.n; i++) {
            stored.items[i] = stored.items[i] != 0.0 ? 1.0 : 0.0;
        }
        made.params[0] = dunlin__constant_param(node, "/stored", &stored);
        s.value = made.params[0] != DUNLIN_NET_NONE ? s.value : DUNLIN_NET_NONE;
        step(&s, &made, "");
    }
    dunlin__constant_free(node, &stored);
    return finish(&s, true);
}

static bool join_masks(dunlin_onnx_node *node)
{
    const bool is_and = strcmp(dunlin__onnx_op_type(node), "And") == 0;
    const uint32_t side = dunlin__onnx_known_value(node, 0) != NULL ? 0 : 1;
    if (dunlin__onnx_known_value(node, side) == NULL) {
        return false;
    }
    if (dunlin__onnx_known_value(node, 1 - side) == NULL) {
        return join_stored_mask(node, side, is_and);
    }
    steps s = {.node = node, .value = dunlin__onnx_value_input(node, 0)};
    join(&s, is_and ? DUNLIN_BINARY_MUL : DUNLIN_BINARY_MAX, dunlin__onnx_value_input(node, 1), "");
    return finish(&s, true);
}

/* --- choices --- */

static double within_floats(double number)
{
    return isinf(number) ? (number < 0.0 ? -(double)FLT_MAX : (double)FLT_MAX) : number;
}

/* One of two numbers. */
static void choose_number(steps *s, double set, double unset)
{
    const float slope = (float)set - (float)unset;
    const bool is_exact = isfinite(slope) && !(slope + (float)unset < (float)set) &&
                          !(slope + (float)unset > (float)set);
    const uint32_t mask = s->value;
    if (is_exact) {
        affine(s, (double)slope, unset, "");
        return;
    }
    affine(s, set, 0.0, "/set");
    steps other = {.node = s->node, .value = mask};
    affine(&other, -unset, unset, "/unset");
    join(s, DUNLIN_BINARY_ADD, other.value, "");
}

/* The value where the mask is set, or where it is not; 0 elsewhere. */
static uint32_t keep(dunlin_onnx_node *node, uint32_t side, const char *suffix)
{
    steps mask = {.node = node, .value = dunlin__onnx_value_input(node, 0)};
    steps kept = {.node = node, .value = dunlin__onnx_value_input(node, side)};
    if (side == 2) {
        affine(&mask, -1.0, 1.0, "/unset");
    }
    join(&kept, DUNLIN_BINARY_MUL, mask.value, suffix);
    return kept.value;
}

static bool choose(dunlin_onnx_node *node)
{
    double numbers[3] = {0.0, 0.0, 0.0};
    bool is_number[3] = {false, false, false};
    steps s = {.node = node, .value = dunlin__onnx_value_input(node, 0)};
    if (dunlin__onnx_known_value(node, 0) == NULL) {
        return false;
    }
    for (uint32_t i = 1; i < 3; i++) {
        is_number[i] = dunlin__onnx_number_input(node, i, &numbers[i]);
        numbers[i] = within_floats(numbers[i]);
        if (!is_number[i] && dunlin__onnx_known_value(node, i) == NULL) {
            (void)dunlin__onnx_reject(node, "", "input %d is neither an activation nor one number",
                                      (int)i);
            return true;
        }
    }
    if (is_number[1] && is_number[2]) {
        choose_number(&s, numbers[1], numbers[2]);
        return finish(&s, false);
    }
    const uint32_t side = is_number[1] ? 2 : 1;
    const bool is_sum = !is_number[3 - side] || numbers[3 - side] != 0.0;
    const uint32_t kept = keep(node, side, is_sum ? "/kept" : "");
    if (is_sum && is_number[3 - side]) {
        const double other = numbers[3 - side];
        affine(&s, side == 2 ? other : -other, side == 2 ? 0.0 : other, "/other");
    } else if (is_sum) {
        s.value = keep(node, 3 - side, "/other");
    }
    steps sum = {.node = node, .value = kept};
    if (is_sum) {
        join(&sum, DUNLIN_BINARY_ADD, s.value, "");
    }
    return finish(&sum, false);
}

bool dunlin__onnx_fold_comparison(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Equal", compare},          {"Greater", compare},     {"Less", compare},
        {"GreaterOrEqual", compare}, {"LessOrEqual", compare}, {"Not", negate},
        {"And", join_masks},         {"Or", join_masks},       {"Where", choose},
    };
    bool is_any = false;
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        is_any = is_any || dunlin__onnx_known_value(node, i) != NULL;
    }
    return is_any && !dunlin__onnx_is_anything_unknown(node) &&
           dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]);
}
