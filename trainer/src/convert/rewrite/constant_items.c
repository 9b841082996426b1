/*
 * constant_items.c - arithmetic and comparisons of constants, element by element.
 *
 * Invariant: floats are rounded to float after each operator, as they would be if it ran.
 */
#include "constants.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

typedef struct item_op {
    const char *op_type;
    double (*two)(double a, double b);
    bool is_comparison; /* the result is of type BOOL */
} item_op;

static double add(double a, double b)
{
    return a + b;
}

static double subtract(double a, double b)
{
    return a - b;
}

static double multiply(double a, double b)
{
    return a * b;
}

static double divide(double a, double b)
{
    return a / b;
}

static double modulo(double a, double b)
{
    const double rest = fmod(a, b);
    return rest != 0.0 && (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

static double smaller(double a, double b)
{
    return b < a ? b : a;
}

static double larger(double a, double b)
{
    return b > a ? b : a;
}

static double equal(double a, double b)
{
    return a == b ? 1.0 : 0.0;
}

static double less(double a, double b)
{
    return a < b ? 1.0 : 0.0;
}

static double greater(double a, double b)
{
    return a > b ? 1.0 : 0.0;
}

static double less_or_equal(double a, double b)
{
    return a <= b ? 1.0 : 0.0;
}

static double greater_or_equal(double a, double b)
{
    return a >= b ? 1.0 : 0.0;
}

static double both(double a, double b)
{
    return a != 0.0 && b != 0.0 ? 1.0 : 0.0;
}

static double either(double a, double b)
{
    return a != 0.0 || b != 0.0 ? 1.0 : 0.0;
}

static double one_of(double a, double b)
{
    return (a != 0.0) != (b != 0.0) ? 1.0 : 0.0;
}

static const item_op ops_of_two[] = {
    {"Add", add, false},
    {"Sub", subtract, false},
    {"Mul", multiply, false},
    {"Div", divide, false},
    {"Mod", modulo, false},
    {"Pow", pow, false},
    {"Min", smaller, false},
    {"Max", larger, false},
    {"Equal", equal, true},
    {"Less", less, true},
    {"Greater", greater, true},
    {"LessOrEqual", less_or_equal, true},
    {"GreaterOrEqual", greater_or_equal, true},
    {"And", both, true},
    {"Or", either, true},
    {"Xor", one_of, true},
};

static double rounded(double number, int32_t type)
{
    return type == DUNLIN_ONNX_FLOAT ? (double)(float)number : trunc(number);
}

/* `is_good` false: a division of whole numbers by 0, or what is no number of the type. */
static void join_items(const item_op *op, const dunlin_constant *a, const dunlin_constant *b,
                       dunlin_constant *out, bool *is_good)
{
    for (int64_t i = 0; i < out->n; i++) {
        const double item = op->two(a->items[i], b->items[i]);
        out->items[i] = rounded(item, out->type);
        *is_good = *is_good && (out->type == DUNLIN_ONNX_FLOAT || fabs(item) < 9e15);
    }
}

static bool fold_two(dunlin_onnx_node *node, const item_op *op, dunlin_constant *out)
{
    dunlin_constant sides[2] = {{0}};
    dunlin_constant wide[2] = {{0}};
    dunlin_shape shape;
    bool is_good = dunlin__onnx_n_inputs(node) == 2 && dunlin__constant_read(node, 0, &sides[0]) &&
                   dunlin__constant_read(node, 1, &sides[1]) &&
                   dunlin__constant_join(&sides[0].shape, &sides[1].shape, &shape) &&
                   (op->is_comparison || (!sides[0].is_part && !sides[1].is_part));
    if (is_good && strcmp(op->op_type, "Mod") == 0) {
        (void)dunlin__onnx_int(node, "fmod", 0);
        is_good = sides[0].type == DUNLIN_ONNX_INT64;
    }
    is_good = is_good && dunlin__constant_spread(node, &sides[0], &shape, &wide[0]) &&
              dunlin__constant_spread(node, &sides[1], &shape, &wide[1]) &&
              dunlin__constant_make(node, op->is_comparison ? DUNLIN_ONNX_BOOL : sides[0].type,
                                    &shape, out);
    if (is_good) {
        join_items(op, &wide[0], &wide[1], out, &is_good);
    }
    for (int i = 0; i < 2; i++) {
        dunlin__constant_free(node, &sides[i]);
        dunlin__constant_free(node, &wide[i]);
    }
    return is_good || node->import->is_rejected;
}

static bool fold_where(dunlin_onnx_node *node, dunlin_constant *out)
{
    dunlin_constant parts[3] = {{0}};
    dunlin_constant wide[3] = {{0}};
    dunlin_shape shape = {0};
    bool is_good = dunlin__onnx_n_inputs(node) == 3;
    for (uint32_t i = 0; i < 3 && is_good; i++) {
        const dunlin_shape before = shape;
        is_good = dunlin__constant_read(node, i, &parts[i]) &&
                  dunlin__constant_join(&before, &parts[i].shape, &shape) &&
                  (i == 0 || !parts[i].is_part);
    }
    for (int i = 0; i < 3 && is_good; i++) {
        is_good = dunlin__constant_spread(node, &parts[i], &shape, &wide[i]);
    }
    is_good = is_good && dunlin__constant_make(node, parts[1].type, &shape, out);
    for (int64_t i = 0; is_good && i < out->n; i++) {
        out->items[i] = wide[0].items[i] != 0.0 ? wide[1].items[i] : wide[2].items[i];
    }
    for (int i = 0; i < 3; i++) {
        dunlin__constant_free(node, &parts[i]);
        dunlin__constant_free(node, &wide[i]);
    }
    return is_good || node->import->is_rejected;
}

static double one_item(const char *op, double a)
{
    if (strcmp(op, "Not") == 0) {
        return a == 0.0 ? 1.0 : 0.0;
    }
    if (strcmp(op, "Neg") == 0) {
        return -a;
    }
    if (strcmp(op, "Abs") == 0) {
        return fabs(a);
    }
    if (strcmp(op, "Sqrt") == 0) {
        return sqrt(a);
    }
    if (strcmp(op, "Sin") == 0) {
        return sin(a);
    }
    if (strcmp(op, "Cos") == 0) {
        return cos(a);
    }
    if (strcmp(op, "Log") == 0) {
        return log(a);
    }
    if (strcmp(op, "Floor") == 0) {
        return floor(a);
    }
    if (strcmp(op, "Ceil") == 0) {
        return ceil(a);
    }
    if (strcmp(op, "Reciprocal") == 0) {
        return 1.0 / a;
    }
    if (strcmp(op, "Sign") == 0) {
        return a > 0.0 ? 1.0 : (a < 0.0 ? -1.0 : 0.0);
    }
    return strcmp(op, "Exp") == 0 ? exp(a) : a;
}

/* To which type; 0: to none that is read. */
static int32_t cast_type(const dunlin_onnx_node *node)
{
    switch (dunlin__onnx_int(node, "to", 0)) {
    case DUNLIN_ONNX_FLOAT:
    case DUNLIN_ONNX_DOUBLE:
        return DUNLIN_ONNX_FLOAT;
    case DUNLIN_ONNX_INT32:
    case DUNLIN_ONNX_INT64:
        return DUNLIN_ONNX_INT64;
    case DUNLIN_ONNX_BOOL:
        return DUNLIN_ONNX_BOOL;
    default:
        return 0;
    }
}

static bool fold_one(dunlin_onnx_node *node, dunlin_constant *out)
{
    const char *op = dunlin__onnx_op_type(node);
    const bool is_cast = strcmp(op, "Cast") == 0;
    dunlin_constant from = {0};
    const int32_t to = is_cast ? cast_type(node) : DUNLIN_ONNX_FLOAT;
    if (to == 0 || !dunlin__constant_read(node, 0, &from)) {
        return node->import->is_rejected;
    }
    const int32_t type = is_cast ? to : from.type;
    bool is_good = (!from.is_part || (is_cast && type != DUNLIN_ONNX_FLOAT)) &&
                   dunlin__constant_make(node, type, &from.shape, out);
    for (int64_t i = 0; is_good && i < from.n; i++) {
        const double item = is_cast ? from.items[i] : one_item(op, from.items[i]);
        is_good = type == DUNLIN_ONNX_FLOAT || type == DUNLIN_ONNX_BOOL || fabs(item) < 9e15;
        out->items[i] = type == DUNLIN_ONNX_BOOL ? (item != 0.0 ? 1.0 : 0.0) : rounded(item, type);
    }
    dunlin__constant_free(node, &from);
    return is_good || node->import->is_rejected;
}

/* Bounds may be missing. */
static bool fold_clip(dunlin_onnx_node *node, dunlin_constant *out)
{
    dunlin_constant from = {0};
    dunlin_constant bounds[2] = {{0}};
    bool is_good = dunlin__constant_read(node, 0, &from) && !from.is_part;
    for (uint32_t i = 0; i < 2 && is_good; i++) {
        is_good = !dunlin__onnx_has_input(node, i + 1) ||
                  (dunlin__constant_read(node, i + 1, &bounds[i]) && bounds[i].n == 1);
    }
    is_good = is_good && dunlin__constant_make(node, from.type, &from.shape, out);
    for (int64_t i = 0; is_good && i < from.n; i++) {
        const double least =
            bounds[0].n == 1 ? larger(from.items[i], bounds[0].items[0]) : from.items[i];
        out->items[i] = bounds[1].n == 1 ? smaller(least, bounds[1].items[0]) : least;
    }
    dunlin__constant_free(node, &from);
    for (int i = 0; i < 2; i++) {
        dunlin__constant_free(node, &bounds[i]);
    }
    return is_good || node->import->is_rejected;
}

bool dunlin__constant_items(dunlin_onnx_node *node, dunlin_constant *out)
{
    static const char *const ops_of_one[] = {"Cast", "Not",        "Neg", "Abs", "Sqrt",
                                             "Sin",  "Cos",        "Exp", "Log", "Floor",
                                             "Ceil", "Reciprocal", "Sign"};
    const char *op = dunlin__onnx_op_type(node);
    for (size_t i = 0; i < sizeof ops_of_two / sizeof ops_of_two[0]; i++) {
        if (strcmp(op, ops_of_two[i].op_type) == 0) {
            return fold_two(node, &ops_of_two[i], out);
        }
    }
    for (size_t i = 0; i < sizeof ops_of_one / sizeof ops_of_one[0]; i++) {
        if (strcmp(op, ops_of_one[i]) == 0) {
            return fold_one(node, out);
        }
    }
    return strcmp(op, "Clip") == 0 ? fold_clip(node, out)
                                   : strcmp(op, "Where") == 0 && fold_where(node, out);
}
