/*
 * chances.c - stochastic depth as files write it out: a uniform number for each sample, compared
 * with the chance to stay, divided by it, times the value.
 *
 *     RandomUniformLike(ones (N, 1, 1, 1)) -> Less(keep) -> Cast -> Div(keep) -> Mul(x)
 *     RandomUniformLike(...) -> Add(keep) -> Floor -> Mul(x / keep)
 *     Expand(1, (N, 1, 1, 1)) -> Dropout(1 - keep) -> Mul(x)
 *
 * Invariant: what stands between the first of these nodes and the product is no value of the
 * network; only the next node of the pattern can read it, every other reader is rejected.
 */
#include "fold.h"

#include <mem/support.h>

#include <math.h>
#include <string.h>

static const dunlin_onnx_chance *chance_input(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    return input != NULL && input->meaning == DUNLIN_ONNX_CHANCE
               ? &node->import->chances[input->index]
               : NULL;
}

/* Binds the node's output to a copy; `from` may lie in the table that grows. */
static bool bind_chance(dunlin_onnx_node *node, const dunlin_onnx_chance *from)
{
    dunlin_onnx_import *import = node->import;
    const dunlin_onnx_chance made = *from;
    void *chances = import->chances;
    if (!dunlin__grow_array(&import->file->alloc, &chances, &import->chances_capacity,
                            import->n_chances + 1, sizeof *import->chances)) {
        import->node_status =
            dunlin__fail(import->error, DUNLIN_MEMORY, "onnx", 0, "no memory for a random draw");
        return true;
    }
    import->chances = chances;
    import->chances[import->n_chances] = made;
    dunlin_onnx_binding *output = dunlin__onnx_output(node, 0);
    output->meaning = DUNLIN_ONNX_CHANCE;
    output->index = (uint32_t)import->n_chances++;
    return true;
}

/* The shape (N, 1, ...). */
static bool is_one_a_sample(const dunlin_onnx_node *node, uint32_t index)
{
    dunlin_onnx_vector shape;
    if (!dunlin__onnx_vector_input(node, index, &shape) || shape.n < 1 ||
        !dunlin_onnx_is_samples(&shape, 0)) {
        return false;
    }
    for (int32_t i = 1; i < shape.n; i++) {
        if (shape.is_batch[i] || shape.items[i] != 1) {
            return false;
        }
    }
    return true;
}

static bool fold_ones(dunlin_onnx_node *node)
{
    double number = 0.0;
    return is_one_a_sample(node, 1) && dunlin__onnx_number_input(node, 0, &number) &&
           number == 1.0 &&
           dunlin__onnx_is_read_by(node->import, dunlin__onnx_output(node, 0), "Dropout") &&
           bind_chance(node, &(dunlin_onnx_chance){.stage = DUNLIN_ONNX_CHANCE_ONES});
}

/* Its input is one number for each sample: a list that stands for the batch. */
static bool fold_uniform(dunlin_onnx_node *node)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, 0);
    if (input == NULL || input->meaning != DUNLIN_ONNX_TENSOR || !input->is_flat ||
        node->import->file->tensors[input->index].n_elements != 1) {
        return false;
    }
    const float low = dunlin__onnx_float(node, "low", 0.0F);
    const float high = dunlin__onnx_float(node, "high", 1.0F);
    if (low != 0.0F || high != 1.0F) {
        (void)dunlin__onnx_reject(node, "high", "draws from %g to %g; only from 0 to 1 are read",
                                  (double)low, (double)high);
        return true;
    }
    return bind_chance(node, &(dunlin_onnx_chance){.stage = DUNLIN_ONNX_CHANCE_UNIFORM});
}

static bool bind_drawn(dunlin_onnx_node *node, double keep, double factor)
{
    if (!(keep > 0.0 && keep <= 1.0)) {
        (void)dunlin__onnx_reject(node, "", "a chance of %g, not in (0, 1]", keep);
        return true;
    }
    return bind_chance(
        node,
        &(dunlin_onnx_chance){.stage = DUNLIN_ONNX_CHANCE_DRAWN, .keep = keep, .factor = factor});
}

/* u < p is true with probability p, u > p with 1 - p. */
static bool fold_compared(dunlin_onnx_node *node)
{
    const uint32_t side = chance_input(node, 0) != NULL ? 0 : 1;
    const dunlin_onnx_chance *chance = chance_input(node, side);
    double bound = 0.0;
    if (chance == NULL || chance->stage != DUNLIN_ONNX_CHANCE_UNIFORM ||
        !dunlin__onnx_number_input(node, 1 - side, &bound)) {
        return false;
    }
    const bool is_less = strncmp(dunlin__onnx_op_type(node), "Less", 4) == 0;
    const double below = bound - chance->added;
    return bind_drawn(node, is_less == (side == 0) ? below : 1.0 - below, 1.0);
}

static bool fold_sum(dunlin_onnx_node *node)
{
    const uint32_t side = chance_input(node, 0) != NULL ? 0 : 1;
    const dunlin_onnx_chance *chance = chance_input(node, side);
    double number = 0.0;
    if (chance == NULL || chance->stage != DUNLIN_ONNX_CHANCE_UNIFORM ||
        !dunlin__onnx_number_input(node, 1 - side, &number)) {
        return false;
    }
    dunlin_onnx_chance made = *chance;
    made.added += number;
    return bind_chance(node, &made);
}

/* floor(u + p) is 1 with probability p. */
static bool fold_floor(dunlin_onnx_node *node)
{
    const dunlin_onnx_chance *chance = chance_input(node, 0);
    return chance != NULL && chance->stage == DUNLIN_ONNX_CHANCE_UNIFORM &&
           bind_drawn(node, chance->added, 1.0);
}

static bool fold_dropped(dunlin_onnx_node *node)
{
    const dunlin_onnx_chance *chance = chance_input(node, 0);
    double ratio = 0.5;
    if (chance == NULL || chance->stage != DUNLIN_ONNX_CHANCE_ONES ||
        (dunlin__onnx_has_input(node, 1) && !dunlin__onnx_scalar_input(node, 1, &ratio))) {
        return false;
    }
    return bind_drawn(node, 1.0 - ratio, 1.0 / (1.0 - ratio));
}

static bool fold_quotient(dunlin_onnx_node *node)
{
    const dunlin_onnx_chance *chance = chance_input(node, 0);
    double number = 0.0;
    return chance != NULL && chance->stage == DUNLIN_ONNX_CHANCE_DRAWN &&
           dunlin__onnx_number_input(node, 1, &number) &&
           bind_drawn(node, chance->keep, chance->factor / number);
}

/* x / keep, of which the product is: its x, so that the value is not divided in evaluation. NONE:
 * it is no such quotient. */
static uint32_t undivided(const dunlin_net *net, uint32_t value, double keep)
{
    const uint32_t producer = net->values[value].producer;
    const dunlin_net_node *node = producer == DUNLIN_NET_NONE ? NULL : &net->nodes[producer];
    const bool is_divided = node != NULL && node->kind == DUNLIN_OP_UNARY &&
                            node->u.unary.fn == DUNLIN_UNARY_AFFINE && node->u.unary.b == 0.0F &&
                            fabs((double)node->u.unary.a * keep - 1.0) < 1e-4;
    return is_divided ? node->inputs[0] : DUNLIN_NET_NONE;
}

static bool fold_product(dunlin_onnx_node *node)
{
    const uint32_t side = chance_input(node, 0) != NULL ? 0 : 1;
    const dunlin_onnx_chance *chance = chance_input(node, side);
    double number = 0.0;
    if (chance == NULL || chance->stage != DUNLIN_ONNX_CHANCE_DRAWN) {
        return false;
    }
    const double keep = chance->keep;
    const double factor = chance->factor;
    if (dunlin__onnx_number_input(node, 1 - side, &number)) {
        return bind_drawn(node, keep, factor * number);
    }
    const uint32_t value = dunlin__onnx_value_input(node, 1 - side);
    if (value == DUNLIN_NET_NONE) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_DROPOUT, .inputs = {value}, .n_inputs = 1};
    made.u.dropout.ratio = (float)(1.0 - keep);
    made.u.dropout.is_whole = true;
    if (fabs(factor * keep - 1.0) >= 1e-4) {
        made.inputs[0] =
            factor == 1.0 ? undivided(node->import->net, value, keep) : DUNLIN_NET_NONE;
    }
    if (made.inputs[0] == DUNLIN_NET_NONE) {
        (void)dunlin__onnx_reject(node, "",
                                  "what is kept with a chance of %g is multiplied by %g, not by "
                                  "one over the chance: evaluation would see another mean",
                                  keep, factor);
        return true;
    }
    dunlin__onnx_finish(node, &made);
    return true;
}

static bool fold_copy(dunlin_onnx_node *node)
{
    const dunlin_onnx_chance *chance = chance_input(node, 0);
    (void)dunlin__onnx_int(node, "to", 0);
    return chance != NULL && bind_chance(node, chance);
}

/* An issue was found before it: no second one. */
static bool fold_after_issue(dunlin_onnx_node *node)
{
    static const char *const ops[] = {"RandomUniformLike", "Less",           "LessOrEqual",
                                      "Greater",           "GreaterOrEqual", "Floor"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(dunlin__onnx_op_type(node), ops[i]) == 0 &&
            dunlin__onnx_is_vector_unknown(node, 0)) {
            dunlin__onnx_bind_vector(node, &(dunlin_onnx_vector){.n = DUNLIN_ONNX_UNKNOWN});
            return true;
        }
    }
    return false;
}

static bool has_chance_input(const dunlin_onnx_node *node)
{
    bool has = false;
    for (uint32_t i = 0; i < dunlin__onnx_n_inputs(node); i++) {
        has = has || chance_input(node, i) != NULL;
    }
    return has;
}

bool dunlin__onnx_fold_chances(dunlin_onnx_node *node)
{
    static const dunlin_onnx_fold entries[] = {
        {"Expand", fold_ones},      {"RandomUniformLike", fold_uniform},
        {"Less", fold_compared},    {"LessOrEqual", fold_compared},
        {"Greater", fold_compared}, {"GreaterOrEqual", fold_compared},
        {"Add", fold_sum},          {"Floor", fold_floor},
        {"Dropout", fold_dropped},  {"Div", fold_quotient},
        {"Mul", fold_product},      {"Cast", fold_copy},
        {"CastLike", fold_copy},    {"Identity", fold_copy},
    };
    if (dunlin__onnx_fold_by(node, entries, sizeof entries / sizeof entries[0]) ||
        fold_after_issue(node)) {
        return true;
    }
    if (!has_chance_input(node) || dunlin__onnx_is_anything_unknown(node)) {
        return false;
    }
    (void)dunlin__onnx_reject(node, "",
                              "it reads a random draw that can only be stochastic depth written "
                              "out: one number a sample, compared, divided, times a value");
    return true;
}
