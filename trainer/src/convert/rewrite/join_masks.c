/*
 * join_masks.c - see join_masks.h.
 */
#include "join_masks.h"

#include "join_views.h"
#include "net/params.h"

#include <mem/support.h>

/* What is added to a score to hide it is this or less: no exponential is left of it. */
#define HIDDEN (-1e4F)
/* Beside this a score is nothing, so that what hides all of a row says the same of its keys. */
#define WHOLLY_HIDDEN (-1e9F)
/* Elements of a constant mask that is looked at. */
#define MAX_MASK_ELEMENTS ((int64_t)1 << 22)

/* A parameter's values; the caller frees them. NULL if they are not available. */
static float *read_param(const dunlin_joiner *j, uint32_t param)
{
    const dunlin_alloc *alloc = &j->net->alloc;
    const int64_t n = j->net->params[param].n_elements;
    dunlin_param_reader reader;
    dunlin_error error = {0};
    float *values =
        n <= MAX_MASK_ELEMENTS ? dunlin__alloc_array(alloc, (size_t)n, sizeof *values) : NULL;
    if (values == NULL) {
        return NULL;
    }
    dunlin__param_reader_init(&reader, j->net, 0);
    const dunlin_status status = dunlin__param_read(&reader, param, 0, n, values, &error);
    dunlin__param_reader_close(&reader);
    if (status != DUNLIN_OK) {
        dunlin__free_array(alloc, values, (size_t)n, sizeof *values);
        return NULL;
    }
    return values;
}

/* (..., rows, keys) with rows 1 or one for each query, and heads 1 or all. */
static bool fits_scores(const dunlin_shape *shape, const dunlin_join_sizes *s)
{
    const int32_t n = shape->n_dims;
    bool fits = n >= 1 && shape->dims[n - 1] == s->n_keys &&
                (n < 2 || shape->dims[n - 2] == 1 || shape->dims[n - 2] == s->n_queries) &&
                (n < 3 || shape->dims[n - 3] == 1 || shape->dims[n - 3] == s->heads);
    for (int32_t i = 0; i + 3 < n; i++) {
        fits = fits && shape->dims[i] == 1;
    }
    return fits;
}

/* What a mask does, row by row; false if it hides all of a row, or chooses what it does not hide.
 */
static bool look_at(dunlin_join_mask *mask, const float *values, const float *let, int64_t n_rows,
                    int64_t n_queries, int64_t n_keys)
{
    mask->is_hiding_ahead = n_rows % n_queries == 0 && n_queries == n_keys;
    mask->is_hiding_only = mask->is_hiding_ahead;
    for (int64_t row = 0; row < n_rows; row++) {
        bool is_seen = false;
        for (int64_t key = 0; key < n_keys; key++) {
            const float value = values[row * n_keys + key];
            const bool is_hidden = value <= HIDDEN;
            const bool is_ahead = key > row % n_queries;
            if (let != NULL && let[row * n_keys + key] != (is_hidden ? 0.0F : 1.0F)) {
                return false;
            }
            is_seen = is_seen || !is_hidden;
            mask->is_hiding_ahead = mask->is_hiding_ahead && (!is_ahead || is_hidden);
            mask->is_hiding_only = mask->is_hiding_only && (is_ahead || value == 0.0F);
        }
        if (!is_seen) {
            return false;
        }
    }
    mask->is_hiding_only = mask->is_hiding_only && mask->is_hiding_ahead;
    return true;
}

static bool is_same_shape(const dunlin_shape *a, const dunlin_shape *b)
{
    bool is_same = a->n_dims == b->n_dims;
    for (int32_t i = 0; is_same && i < a->n_dims; i++) {
        is_same = a->dims[i] == b->dims[i];
    }
    return is_same;
}

bool dunlin__join_mask(const dunlin_joiner *j, dunlin_join_mask *mask, const dunlin_join_sizes *s)
{
    const dunlin_net_param *params = j->net->params;
    const dunlin_net_param *param = &params[mask->param];
    const bool has_let = mask->let != DUNLIN_NET_NONE;
    if (!fits_scores(&param->shape, s) ||
        (has_let && !is_same_shape(&params[mask->let].shape, &param->shape))) {
        return false;
    }
    float *values = read_param(j, mask->param);
    float *let = has_let ? read_param(j, mask->let) : NULL;
    const bool is_good =
        values != NULL && (!has_let || let != NULL) &&
        look_at(mask, values, let, param->n_elements / s->n_keys, s->n_queries, s->n_keys);
    const size_t n = (size_t)param->n_elements;
    dunlin__free_array(&j->net->alloc, values, n, sizeof *values);
    dunlin__free_array(&j->net->alloc, let, n, sizeof *let);
    return is_good;
}

/* --- masks that are made of an input --- */

static const dunlin_net_node *affine_of(const dunlin_joiner *j, uint32_t value)
{
    const dunlin_net_node *node = join_producer(j, value);
    return node != NULL && node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == DUNLIN_UNARY_AFFINE
               ? node
               : NULL;
}

static bool is_as(const dunlin_net_node *node, float a, float b)
{
    return !(node->u.unary.a < a) && !(node->u.unary.a > a) && !(node->u.unary.b < b) &&
           !(node->u.unary.b > b);
}

bool dunlin__join_is_choice(const dunlin_joiner *j, uint32_t mask, uint32_t let)
{
    const dunlin_net_node *added = affine_of(j, mask);
    const dunlin_net_node *kept = affine_of(j, let);
    if (added == NULL) {
        return false;
    }
    const float slope = added->u.unary.a;
    if (slope <= WHOLLY_HIDDEN && is_as(added, slope, 0.0F)) {
        return kept != NULL && is_as(kept, -1.0F, 1.0F) && kept->inputs[0] == added->inputs[0];
    }
    const uint32_t own = kept != NULL && is_as(kept, 1.0F, 0.0F) ? kept->inputs[0] : let;
    return slope >= -WHOLLY_HIDDEN && is_as(added, slope, -slope) && own == added->inputs[0];
}

/* Nothing is left out or scaled. */
static bool is_whole_view(const dunlin_join_view *view)
{
    return view->offset == 0 && !(view->factor < 1.0F) && !(view->factor > 1.0F);
}

/* It is set where a key lies ahead of its query, and nowhere else. */
static bool is_ahead_only(const dunlin_joiner *j, uint32_t param, const dunlin_join_sizes *s)
{
    const int64_t n = j->net->params[param].n_elements;
    float *values = s->n_queries == s->n_keys && n == s->n_queries * s->n_keys &&
                            fits_scores(&j->net->params[param].shape, s)
                        ? read_param(j, param)
                        : NULL;
    bool is_one = values != NULL;
    for (int64_t i = 0; is_one && i < n; i++) {
        const float wanted = i % s->n_keys > i / s->n_keys ? 1.0F : 0.0F;
        is_one = !(values[i] < wanted) && !(values[i] > wanted);
    }
    dunlin__free_array(&j->net->alloc, values, (size_t)n, sizeof *values);
    return is_one;
}

/* What of the value's rows is the mask that each head has, before it was repeated. */
static uint32_t find_shared(const dunlin_joiner *j, uint32_t value, const dunlin_join_sizes *s)
{
    const int64_t n_rows = dunlin__value_elements(&j->net->values[value]) / s->heads / s->n_keys;
    const dunlin_join_path path = dunlin__join_path(j, value, false);
    for (uint32_t i = 0; i <= path.n && path.rotation_at == DUNLIN_NET_NONE; i++) {
        const uint32_t source = dunlin__join_source(&path, i);
        const dunlin_net_value *x = &j->net->values[source];
        const int64_t rows = dunlin__value_elements(x) / s->n_keys;
        const dunlin_atoms wanted = {.n = 3,
                                     .at = {{.size = s->heads},
                                            {.size = n_rows, .in_stride = rows > 1 ? s->n_keys : 0},
                                            {.size = s->n_keys, .in_stride = 1}}};
        dunlin_join_view view;
        if (x->layout == DUNLIN_LAYOUT_PLAIN && (rows == 1 || rows == n_rows) &&
            rows * s->n_keys == dunlin__value_elements(x) && x->shape.n_dims > 0 &&
            x->shape.dims[x->shape.n_dims - 1] == s->n_keys &&
            dunlin__join_view(j, &path, 0, i, &view) && is_whole_view(&view) &&
            dunlin__join_is_over(&view, &wanted)) {
            return source;
        }
    }
    return DUNLIN_NET_NONE;
}

bool dunlin__join_mask_source(const dunlin_joiner *j, uint32_t mask, const dunlin_join_sizes *s,
                              dunlin_join_source_of_mask *out)
{
    const dunlin_net_node *added = affine_of(j, mask);
    *out = (dunlin_join_source_of_mask){.source = DUNLIN_NET_NONE};
    if (added == NULL || j->net->values[mask].n_consumers != 1) {
        return false;
    }
    uint32_t value = added->inputs[0];
    const dunlin_net_node *larger = join_binary(j, value, DUNLIN_BINARY_MAX, 1);
    const float slope = added->u.unary.a;
    if (larger != NULL && slope <= WHOLLY_HIDDEN && is_as(added, slope, 0.0F) &&
        larger->u.binary.n_ones == 0 && dunlin__param_is_fixed(j->net, larger->params[0]) &&
        is_ahead_only(j, larger->params[0], s)) {
        out->is_ahead = true;
        value = larger->inputs[0];
    }
    const int64_t n = dunlin__value_elements(&j->net->values[value]);
    if (n == s->heads * s->n_keys || n == s->heads * s->n_queries * s->n_keys) {
        out->source = find_shared(j, value, s);
    }
    return out->source != DUNLIN_NET_NONE;
}

void dunlin__join_read_mask(const dunlin_joiner *j, uint32_t mask, uint32_t source)
{
    dunlin_net_node *maker = &j->net->nodes[j->net->values[mask].producer];
    dunlin_net_node made = *maker;
    made.inputs[0] = source;
    dunlin__join_replace(j, maker, &made);
    j->net->values[mask].shape = j->net->values[source].shape;
}
