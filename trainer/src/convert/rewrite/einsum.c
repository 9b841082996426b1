/*
 * einsum.c - Einsum of two activations as a product of matrices: letters of both operands and the
 * result are the products side by side, a letter of both operands alone is what is summed over.
 *
 * The left operand is put in the order (side by side, left alone, summed), the right one in (side
 * by side, summed, right alone); what need not be moved is not.
 */
#include "fold.h"

#include <mem/support.h>

#include <string.h>

#define MAX_LETTERS DUNLIN_MAX_DIMS

/* The letters of an operand, without the batch's. */
typedef struct term {
    char letters[MAX_LETTERS + 1];
    int32_t n;
} term;

typedef struct equation {
    term left, right, out;
} equation;

static bool has(const term *t, char letter)
{
    return memchr(t->letters, letter, (size_t)t->n) != NULL;
}

/* Letters up to `end`, blanks left out; the first is the batch's, unless the operand is the same
 * for each sample. False: others, twice, or too many. */
static bool read_term(const char *text, const char *end, bool is_shared, char *batch, term *out)
{
    bool has_batch = is_shared;
    *out = (term){.n = 0};
    for (; text < end; text++) {
        const bool is_letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
        if (*text == ' ') {
            continue;
        }
        if (!is_letter || has(out, *text) || (has_batch && *text == *batch) ||
            out->n == MAX_LETTERS) {
            return false;
        }
        if (!has_batch) {
            *batch = *text;
            has_batch = true;
        } else {
            out->letters[out->n++] = *text;
        }
    }
    return has_batch;
}

static bool is_shared(const dunlin_onnx_node *node, uint32_t index)
{
    const dunlin_onnx_binding *input = dunlin__onnx_input(node, index);
    return input != NULL && input->meaning == DUNLIN_ONNX_VALUE &&
           input->place.mix == DUNLIN_ONNX_MIX_SHARED;
}

/* Two operands and a result that begin with the same letter. */
static bool read_equation(const dunlin_onnx_node *node, const char *text, equation *out)
{
    const bool is_left_shared = is_shared(node, 0);
    const bool is_right_shared = is_shared(node, 1);

    const char *comma = strchr(text, ',');
    const char *arrow = strstr(text, "->");
    char batches[3] = {0};
    if (comma == NULL || arrow == NULL || comma > arrow || strchr(comma + 1, ',') != NULL) {
        return false;
    }
    return read_term(text, comma, is_left_shared, &batches[0], &out->left) &&
           read_term(comma + 1, arrow, is_right_shared, &batches[1], &out->right) &&
           read_term(arrow + 2, arrow + strlen(arrow), false, &batches[2], &out->out) &&
           !(is_left_shared && is_right_shared) && (is_left_shared || batches[0] == batches[2]) &&
           (is_right_shared || batches[1] == batches[2]);
}

/* Letters of `of`, in its order, that the other two have or have not, put behind `out`. */
static int32_t pick(const term *of, const term *a, bool is_in_a, const term *b, bool is_in_b,
                    term *out)
{
    int32_t n = 0;
    for (int32_t i = 0; i < of->n; i++) {
        const char letter = of->letters[i];
        if (has(a, letter) == is_in_a && has(b, letter) == is_in_b && out->n < MAX_LETTERS) {
            out->letters[out->n++] = letter;
            n++;
        }
    }
    return n;
}

static int64_t size_of(const dunlin_net_value *value, const term *t, char letter)
{
    const char *at = memchr(t->letters, letter, (size_t)t->n);
    return at != NULL ? value->shape.dims[at - t->letters] : 1;
}

/* The value with its dimensions in that order; NONE after a rejection. */
static uint32_t ordered(dunlin_onnx_node *node, uint32_t value, const term *from, const term *to,
                        const char *suffix)
{
    dunlin_net_node made = {.kind = DUNLIN_OP_TRANSPOSE, .inputs = {value}, .n_inputs = 1};
    bool is_same = true;
    for (int32_t i = 0; i < to->n; i++) {
        const char *at = memchr(from->letters, to->letters[i], (size_t)from->n);
        made.u.transpose.perm[i] = at != NULL ? (int32_t)(at - from->letters) : 0;
        is_same = is_same && made.u.transpose.perm[i] == i;
    }
    return is_same ? value : dunlin__onnx_make(node, &made, suffix);
}

static uint32_t shaped(dunlin_onnx_node *node, uint32_t value, const dunlin_shape *shape,
                       const char *suffix)
{
    const dunlin_shape *own = &node->import->net->values[value].shape;
    dunlin_net_node made = {.kind = DUNLIN_OP_RESHAPE, .inputs = {value}, .n_inputs = 1};
    made.u.reshape.shape = *shape;
    const bool is_same =
        own->n_dims == shape->n_dims &&
        memcmp(own->dims, shape->dims, (size_t)own->n_dims * sizeof own->dims[0]) == 0;
    return is_same ? value : dunlin__onnx_make(node, &made, suffix);
}

/* Letters [first, first + n) of a term as one dimension behind `shape`. */
static void append(dunlin_shape *shape, const dunlin_net_value *value, const term *own,
                   const term *of, int32_t first, int32_t n, bool is_one)
{
    int64_t product = 1;
    for (int32_t i = first; i < first + n; i++) {
        const int64_t size = size_of(value, own, of->letters[i]);
        if (!is_one) {
            shape->dims[shape->n_dims++] = size;
        }
        product *= size;
    }
    if (is_one) {
        shape->dims[shape->n_dims++] = product;
    }
}

/* Both operands in order, their product, and its dimensions as the result has them. */
static void make_product(dunlin_onnx_node *node, const equation *e)
{
    const dunlin_net *net = node->import->net;
    const dunlin_net_value left = net->values[dunlin__onnx_value_input(node, 0)];
    const dunlin_net_value right = net->values[dunlin__onnx_value_input(node, 1)];
    term l = {.n = 0};
    term r = {.n = 0};
    term made = {.n = 0};
    const int32_t n_beside = pick(&e->left, &e->right, true, &e->out, true, &l);
    r = l;
    made = l;
    const int32_t n_left = pick(&e->left, &e->right, false, &e->out, true, &l);
    const int32_t n_summed = pick(&e->left, &e->right, true, &e->out, false, &l);
    (void)pick(&e->left, &e->right, true, &e->out, false, &r);
    const int32_t n_right = pick(&e->right, &e->left, false, &e->out, true, &r);
    (void)pick(&e->left, &e->right, false, &e->out, true, &made);
    (void)pick(&e->right, &e->left, false, &e->out, true, &made);
    dunlin_shape a = {0};
    append(&a, &left, &e->left, &l, 0, n_beside, false);
    dunlin_shape b = a;
    dunlin_shape y = a;
    append(&a, &left, &e->left, &l, n_beside, n_left, true);
    append(&a, &left, &e->left, &l, n_beside + n_left, n_summed, true);
    append(&b, &right, &e->right, &r, n_beside, n_summed, true);
    append(&b, &right, &e->right, &r, n_beside + n_summed, n_right, true);
    append(&y, &left, &e->left, &l, n_beside, n_left, false);
    append(&y, &right, &e->right, &r, n_beside + n_summed, n_right, false);
    dunlin_net_node product = {.kind = DUNLIN_OP_MATMUL, .n_inputs = 2};
    uint32_t value = ordered(node, dunlin__onnx_value_input(node, 0), &e->left, &l, "/left_turned");
    product.inputs[0] = value != DUNLIN_NET_NONE ? shaped(node, value, &a, "/left") : value;
    value = product.inputs[0] == DUNLIN_NET_NONE
                ? DUNLIN_NET_NONE
                : ordered(node, dunlin__onnx_value_input(node, 1), &e->right, &r, "/right_turned");
    product.inputs[1] = value != DUNLIN_NET_NONE ? shaped(node, value, &b, "/right") : value;
    value = product.inputs[1] == DUNLIN_NET_NONE ? DUNLIN_NET_NONE
                                                 : dunlin__onnx_make(node, &product, "/product");
    value = value != DUNLIN_NET_NONE ? shaped(node, value, &y, "/rows") : value;
    value = value != DUNLIN_NET_NONE ? ordered(node, value, &made, &e->out, "/turned") : value;
    if (value != DUNLIN_NET_NONE) {
        dunlin__onnx_bind_value(node, value);
    }
}

bool dunlin__onnx_fold_einsum(dunlin_onnx_node *node)
{
    equation e;
    if (strcmp(dunlin__onnx_op_type(node), "Einsum") != 0 ||
        dunlin__onnx_is_anything_unknown(node)) {
        return false;
    }
    const dunlin_net_value *left = dunlin__onnx_known_value(node, 0);
    const dunlin_net_value *right = dunlin__onnx_known_value(node, 1);
    const char *text = dunlin__onnx_text(node, "equation", "");
    if (dunlin__onnx_n_inputs(node) != 2 || left == NULL || right == NULL ||
        left->layout != DUNLIN_LAYOUT_PLAIN || right->layout != DUNLIN_LAYOUT_PLAIN) {
        (void)dunlin__onnx_reject(node, "", "only a product of two activations is trained");
        return true;
    }
    bool is_good = read_equation(node, text, &e) && e.left.n == left->shape.n_dims &&
                   e.right.n == right->shape.n_dims;
    for (int32_t i = 0; is_good && i < e.out.n; i++) {
        is_good = has(&e.left, e.out.letters[i]) || has(&e.right, e.out.letters[i]);
    }
    for (int32_t i = 0; is_good && i < e.left.n; i++) {
        const char letter = e.left.letters[i];
        is_good = has(&e.right, letter) ? size_of(right, &e.right, letter) == left->shape.dims[i]
                                        : has(&e.out, letter);
    }
    for (int32_t i = 0; is_good && i < e.right.n; i++) {
        is_good = has(&e.left, e.right.letters[i]) || has(&e.out, e.right.letters[i]);
    }
    if (!is_good || e.left.n + 2 > MAX_LETTERS || e.right.n + 2 > MAX_LETTERS ||
        e.out.n > MAX_LETTERS) {
        (void)dunlin__onnx_reject(
            node, "equation", "'%.60s' is no product of matrices that keeps the batch first", text);
        return true;
    }
    dunlin__onnx_check_attributes(node);
    if (!node->import->is_rejected) {
        make_product(node, &e);
    }
    return true;
}
