/*
 * join_attention.c - products, masks and a softmax over heads that a file writes out are one
 * attention.
 *
 * Invariant: whatever moves lead from a layer's output to the heads, and back, what is read is
 * where the operator reads it. A constant mask is left out only where it hides what lies ahead and
 * adds nothing else.
 */
#include "join_masks.h"
#include "join_views.h"
#include "ops/common/maps.h"

#include <string.h>

#define MAX_FIXED 2
#define MAX_STEPS 16 /* between the softmax and its product */

typedef dunlin_joiner joiner;
typedef dunlin_join_mask fixed_mask;
typedef dunlin_join_sizes sizes;

typedef struct scores {
    uint32_t product;
    float scale;
    uint32_t mask;      /* value; DUNLIN_NET_NONE: none */
    bool is_after_mask; /* the step before added it */
    fixed_mask fixed[MAX_FIXED];
    uint32_t n_fixed;
} scores;

/* One of q, k and v: an input of its own, and one that may hold all three. */
typedef struct part {
    uint32_t own, packed; /* DUNLIN_NET_NONE: there is none */
    float own_factor, packed_factor;
    uint32_t cosines, sines; /* of rotary positions; DUNLIN_NET_NONE: there are none */
    int64_t offset;          /* in the packed one */
    int32_t heads;
} part;

/* --- q, k and v --- */

/* How (heads, tokens, width) lies in rows of `pitch`, each head read `n_copies` times. */
static dunlin_atoms heads_in(int64_t heads, int64_t n_copies, int64_t tokens, int64_t width,
                             int64_t pitch, bool is_columns)
{
    dunlin_atoms atoms = {.n = 4, .at = {{.size = heads, .in_stride = width}, {.size = n_copies}}};
    const dunlin_atom rows = {.size = tokens, .in_stride = pitch};
    const dunlin_atom channels = {.size = width, .in_stride = 1};
    atoms.at[2] = is_columns ? channels : rows;
    atoms.at[3] = is_columns ? rows : channels;
    return atoms;
}

/* Each head of what a product reads is one of the layer before by this number of readers. */
static int64_t copies_in(const dunlin_join_view *view)
{
    int64_t n = 1;
    for (int32_t i = 0; i < view->atoms.n; i++) {
        n *= view->atoms.at[i].in_stride == 0 ? view->atoms.at[i].size : 1;
    }
    return n;
}

/* Rotary positions are along the tokens and the width of a head, as the operator has them. */
static bool is_turned_by_heads(const joiner *j, const dunlin_join_path *path, uint32_t n,
                               int64_t tokens, int64_t width)
{
    const dunlin_net_value *x = &j->net->values[path->rotation.x];
    const int64_t heads = dunlin__value_elements(x) / (tokens * width);
    const int64_t pitch = j->net->values[dunlin__join_source(path, n)].shape.dims[1];
    const dunlin_atoms wanted = heads_in(heads, 1, tokens, width, pitch, false);
    dunlin_join_view view;
    return x->shape.dims[x->shape.n_dims - 1] == width &&
           x->shape.dims[x->shape.n_dims - 2] == tokens &&
           dunlin__join_view(j, path, path->rotation_at + 1, n, &view) &&
           dunlin__join_is_over(&view, &wanted);
}

/* From the nearest to the farthest value that holds the operand as the operator wants it. */
static part find_part(const joiner *j, uint32_t value, int64_t heads, int64_t tokens, int64_t width,
                      bool is_columns)
{
    part found = {.own = DUNLIN_NET_NONE,
                  .packed = DUNLIN_NET_NONE,
                  .cosines = DUNLIN_NET_NONE,
                  .sines = DUNLIN_NET_NONE};
    const dunlin_join_path path = dunlin__join_path(j, value, false);
    for (uint32_t n = 0; n <= path.n; n++) {
        const uint32_t source = dunlin__join_source(&path, n);
        const bool is_turned = path.rotation_at != DUNLIN_NET_NONE && n > path.rotation_at;
        const dunlin_shape *shape = &j->net->values[source].shape;
        dunlin_join_view view;
        if (shape->n_dims != 2 || shape->dims[0] != tokens ||
            j->net->values[source].layout != DUNLIN_LAYOUT_PLAIN ||
            !dunlin__join_view(j, &path, 0, n, &view) ||
            (is_turned && !is_turned_by_heads(j, &path, n, tokens, width))) {
            continue;
        }
        const int64_t n_copies = copies_in(&view);
        const int64_t pitch = shape->dims[1];
        if (heads % n_copies != 0) {
            continue;
        }
        const int64_t own_heads = heads / n_copies;
        const dunlin_atoms wanted = heads_in(own_heads, n_copies, tokens, width, pitch, is_columns);
        if (!dunlin__join_is_over(&view, &wanted)) {
            continue;
        }
        found.heads = (int32_t)own_heads;
        if (is_turned) {
            found.cosines = path.rotation.cosines;
            found.sines = path.rotation.sines;
        }
        if (pitch == own_heads * width) {
            found.own = source;
            found.own_factor = view.factor;
        } else {
            found.packed = source;
            found.packed_factor = view.factor;
            found.offset = view.offset;
        }
    }
    return found;
}

/* q, k and v become the inputs; false if they are not that. */
static bool take_parts(const part parts[3], const sizes *s, dunlin_net_node *made)
{
    const int64_t kv_heads = parts[1].heads;
    const int64_t width = s->width;
    const bool is_packed =
        parts[0].packed != DUNLIN_NET_NONE && parts[1].packed == parts[0].packed &&
        parts[2].packed == parts[0].packed && parts[0].offset == 0 &&
        parts[1].offset == s->heads * width && parts[2].offset == (s->heads + kv_heads) * width;
    if (parts[0].heads != s->heads || parts[2].heads != kv_heads ||
        parts[0].cosines != parts[1].cosines || parts[0].sines != parts[1].sines ||
        parts[2].cosines != DUNLIN_NET_NONE) {
        return false;
    }
    if (parts[0].cosines != DUNLIN_NET_NONE) {
        made->params[1] = parts[0].cosines;
        made->params[2] = parts[0].sines;
        made->n_params = 3;
    }
    float factors[3];
    for (int i = 0; i < 3; i++) {
        if (!is_packed && parts[i].own == DUNLIN_NET_NONE) {
            return false;
        }
        factors[i] = is_packed ? parts[i].packed_factor : parts[i].own_factor;
        made->inputs[i] = is_packed ? parts[i].packed : parts[i].own;
    }
    made->n_inputs = is_packed ? 1 : 3;
    made->u.attention.kv_heads = kv_heads == s->heads ? 0 : (int32_t)kv_heads;
    made->u.attention.scale *= factors[0] * factors[1];
    return factors[2] == 1.0F && isfinite(made->u.attention.scale);
}

/* In a packed value the three are side by side and nothing else is. */
static bool is_packed_whole(const joiner *j, const dunlin_net_node *made, const sizes *s)
{
    const int64_t kv_heads =
        made->u.attention.kv_heads == 0 ? s->heads : made->u.attention.kv_heads;
    return made->n_inputs == 3 ||
           j->net->values[made->inputs[0]].shape.dims[1] == (s->heads + 2 * kv_heads) * s->width;
}

/* --- scores --- */

static bool add_fixed(scores *s, uint32_t param)
{
    if (s->n_fixed == MAX_FIXED) {
        return false;
    }
    s->fixed[s->n_fixed++] = (fixed_mask){.param = param, .let = DUNLIN_NET_NONE};
    return true;
}

/* Of a sum of two values the one that leads to a product of matrices; the other one is a mask. */
static bool take_mask(const joiner *j, const dunlin_net_node *sum, scores *s, uint32_t *out_value)
{
    for (uint32_t side = 0; side < 2 && s->mask == DUNLIN_NET_NONE; side++) {
        uint32_t value = sum->inputs[side];
        for (int i = 0; i < MAX_STEPS; i++) {
            const dunlin_net_node *node = join_producer(j, value);
            if (node == NULL || node->kind == DUNLIN_OP_MATMUL) {
                break;
            }
            value = node->inputs[0];
        }
        const dunlin_net_node *product = join_producer(j, value);
        if (product != NULL && product->kind == DUNLIN_OP_MATMUL) {
            *out_value = sum->inputs[side];
            s->mask = sum->inputs[1 - side];
            return true;
        }
    }
    return false;
}

/* A step back from the softmax; false if it is none of what may be there. */
static bool step_back(const joiner *j, const dunlin_net_node *node, scores *s, bool *is_scaled,
                      bool *is_sum_before, uint32_t *value)
{
    const dunlin_binary_fn fn = node->u.binary.fn;
    *value = node->inputs[0];
    const bool may_be_masked = !*is_scaled;
    const bool was_sum = *is_sum_before;
    const bool was_mask = s->is_after_mask;
    *is_sum_before = false;
    s->is_after_mask = false;
    if (node->kind == DUNLIN_OP_UNARY) {
        *is_scaled = *is_scaled || node->u.unary.a != 1.0F;
        s->scale *= node->u.unary.a;
        return node->u.unary.fn == DUNLIN_UNARY_AFFINE && node->u.unary.b == 0.0F;
    }
    if (node->kind == DUNLIN_OP_RESHAPE) {
        const dunlin_shape *from = &j->net->values[node->inputs[0]].shape;
        const dunlin_shape *to = &node->u.reshape.shape;
        return from->n_dims >= 2 && to->n_dims >= 2 &&
               from->dims[from->n_dims - 1] == to->dims[to->n_dims - 1] &&
               from->dims[from->n_dims - 2] == to->dims[to->n_dims - 2];
    }
    if (!may_be_masked || (node->kind != DUNLIN_OP_BINARY && node->kind != DUNLIN_OP_ADD)) {
        return false;
    }
    if (node->n_inputs == 2 && s->mask != DUNLIN_NET_NONE) {
        return was_mask && fn == DUNLIN_BINARY_MUL && node->kind == DUNLIN_OP_BINARY &&
               dunlin__join_is_choice(j, s->mask, node->inputs[1]);
    }
    if (node->n_inputs == 2) {
        s->is_after_mask = true;
        return (node->kind == DUNLIN_OP_ADD || fn == DUNLIN_BINARY_ADD) &&
               take_mask(j, node, s, value);
    }
    if (fn == DUNLIN_BINARY_ADD && dunlin__param_is_fixed(j->net, node->params[0])) {
        *is_sum_before = true;
        return node->u.binary.n_ones == 0 && add_fixed(s, node->params[0]);
    }
    if (fn == DUNLIN_BINARY_MUL && was_sum && node->u.binary.n_ones == 0 &&
        dunlin__param_is_fixed(j->net, node->params[0])) {
        s->fixed[s->n_fixed - 1].let = node->params[0];
        return true;
    }
    return false;
}

/* From what the softmax reads back to the product of q and k. */
static bool take_scores(const joiner *j, uint32_t value, scores *s)
{
    bool is_scaled = false;
    bool is_sum_before = false;
    *s = (scores){.scale = 1.0F, .mask = DUNLIN_NET_NONE};
    for (int i = 0; i < MAX_STEPS; i++) {
        const dunlin_net_node *node = join_producer(j, value);
        if (node == NULL || j->net->values[value].n_consumers != 1) {
            return false;
        }
        if (node->kind == DUNLIN_OP_MATMUL) {
            s->product = value;
            return true;
        }
        if (!step_back(j, node, s, &is_scaled, &is_sum_before, &value)) {
            return false;
        }
    }
    return false;
}

/* --- masks --- */

/* The masks become a flag, a parameter and an input. */
static bool take_masks(const joiner *j, scores *from, const sizes *s, dunlin_net_node *made)
{
    for (uint32_t i = 0; i < from->n_fixed; i++) {
        fixed_mask *mask = &from->fixed[i];
        const bool is_second = made->params[0] != DUNLIN_NET_NONE;
        if (!dunlin__join_mask(j, mask, s) || (!mask->is_hiding_only && is_second)) {
            return false;
        }
        made->u.attention.is_causal = made->u.attention.is_causal || mask->is_hiding_ahead;
        if (!mask->is_hiding_only) {
            made->params[0] = mask->param;
            made->n_params = made->n_params == 0 ? 1 : made->n_params;
        }
    }
    if (from->mask == DUNLIN_NET_NONE) {
        return true;
    }
    dunlin_join_source_of_mask source;
    if (j->net->values[from->mask].layout != DUNLIN_LAYOUT_PLAIN ||
        dunlin__op_has_param_before(j->net, from->mask)) {
        return false;
    }
    made->u.attention.has_mask = true;
    made->inputs[made->n_inputs++] = from->mask;
    if (dunlin__join_mask_source(j, from->mask, s, &source)) {
        made->u.attention.is_causal = made->u.attention.is_causal || source.is_ahead;
        dunlin__join_read_mask(j, from->mask, source.source);
        return true;
    }
    const dunlin_shape *shape = &j->net->values[from->mask].shape;
    const int64_t n = dunlin__value_elements(&j->net->values[from->mask]);
    return shape->n_dims > 0 && shape->dims[shape->n_dims - 1] == s->n_keys &&
           (n == s->n_keys || n == s->n_queries * s->n_keys);
}

/* --- all of it --- */

/* What the node puts together: heads of a product side by side. NULL: it does not. */
static const dunlin_net_node *find_product(const joiner *j, const dunlin_net_node *node,
                                           dunlin_join_view *out_view)
{
    const bool is_move = node->kind == DUNLIN_OP_RESHAPE || node->kind == DUNLIN_OP_REARRANGE;
    if (!is_move || j->net->values[node->output].shape.n_dims != 2) {
        return NULL;
    }
    dunlin_join_path path = dunlin__join_path(j, node->inputs[0], true);
    const uint32_t source = dunlin__join_source(&path, path.n);
    const dunlin_net_node *product = join_sole(j, source, DUNLIN_OP_MATMUL);
    if (product == NULL || path.n == DUNLIN_JOIN_MAX_MOVES) {
        return NULL;
    }
    memmove(path.nodes + 1, path.nodes, path.n * sizeof path.nodes[0]);
    memmove(path.sources + 1, path.sources, path.n * sizeof path.sources[0]);
    path.nodes[0] = (uint32_t)(node - j->net->nodes);
    path.sources[0] = node->inputs[0];
    path.value = node->output;
    path.n++;
    return dunlin__join_view(j, &path, 0, path.n, out_view) && out_view->factor == 1.0F ? product
                                                                                        : NULL;
}

static sizes sizes_of(const joiner *j, const dunlin_net_node *product, const dunlin_net_node *made)
{
    const dunlin_shape *out = &j->net->values[made->output].shape;
    const dunlin_shape *in = &j->net->values[product->inputs[0]].shape;
    sizes s = {
        .heads = 1,
        .n_queries = out->dims[out->n_dims - 2],
        .n_keys = out->dims[out->n_dims - 1],
        .width = in->dims[product->u.matmul.is_left_transposed ? in->n_dims - 2 : in->n_dims - 1]};
    for (int32_t i = 0; i + 2 < out->n_dims; i++) {
        s.heads *= out->dims[i];
    }
    return s;
}

/* The softmax that `product` takes with the values, past changes of its leading dimensions. */
static const dunlin_net_node *find_softmax(const joiner *j, const dunlin_net_node *product)
{
    uint32_t value = product->inputs[0];
    for (int i = 0; i < MAX_STEPS; i++) {
        const dunlin_net_node *node = join_producer(j, value);
        scores ignored = {.mask = DUNLIN_NET_NONE};
        bool is_scaled = true;
        bool is_sum_before = false;
        if (node == NULL || j->net->values[value].n_consumers != 1) {
            return NULL;
        }
        if (node->kind == DUNLIN_OP_SOFTMAX) {
            return node->u.softmax.is_log ? NULL : node;
        }
        if (node->kind != DUNLIN_OP_RESHAPE ||
            !step_back(j, node, &ignored, &is_scaled, &is_sum_before, &value)) {
            return NULL;
        }
    }
    return NULL;
}

bool dunlin__join_attention(const dunlin_joiner *j, dunlin_net_node *node)
{
    dunlin_join_view view;
    const dunlin_net_node *sum = find_product(j, node, &view);
    const dunlin_net_node *softmax =
        sum != NULL && !sum->u.matmul.is_left_transposed ? find_softmax(j, sum) : NULL;
    scores from;
    if (softmax == NULL || !take_scores(j, softmax->inputs[0], &from)) {
        return false;
    }
    const dunlin_net_node *product = join_producer(j, from.product);
    const sizes s = sizes_of(j, product, product);
    const dunlin_shape *out = &j->net->values[node->output].shape;
    const dunlin_atoms wanted = {.n = 3,
                                 .at = {{.size = s.n_queries, .in_stride = s.width},
                                        {.size = s.heads, .in_stride = s.n_queries * s.width},
                                        {.size = s.width, .in_stride = 1}}};
    if (out->dims[0] != s.n_queries || out->dims[1] != s.heads * s.width || view.offset != 0 ||
        !dunlin__join_is_over(&view, &wanted)) {
        return false;
    }
    dunlin_net_node made = {.kind = DUNLIN_OP_ATTENTION, .params = {DUNLIN_NET_NONE}};
    made.u.attention = (dunlin_net_attention){.heads = (int32_t)s.heads, .scale = from.scale};
    const part parts[3] = {
        find_part(j, product->inputs[0], s.heads, s.n_queries, s.width,
                  product->u.matmul.is_left_transposed),
        find_part(j, product->inputs[1], s.heads, s.n_keys, s.width,
                  !product->u.matmul.is_right_transposed),
        find_part(j, sum->inputs[1], s.heads, s.n_keys, s.width, sum->u.matmul.is_right_transposed),
    };
    if (!take_parts(parts, &s, &made) || !is_packed_whole(j, &made, &s) ||
        !take_masks(j, &from, &s, &made)) {
        return false;
    }
    dunlin__join_replace(j, node, &made);
    return true;
}
