/*
 * join_views.c - see join_views.h.
 *
 * Invariant: atoms are in the order of the current shape, and each knows the dimension that it is
 * of; dimensions of one have none.
 */
#include "join_views.h"

#include <string.h>

static bool is_move(const dunlin_net *net, const dunlin_net_node *node)
{
    const bool is_plain = net->values[node->inputs[0]].layout == DUNLIN_LAYOUT_PLAIN &&
                          net->values[node->output].layout == DUNLIN_LAYOUT_PLAIN;
    switch ((int)node->kind) {
    case DUNLIN_OP_RESHAPE:
    case DUNLIN_OP_FLATTEN:
    case DUNLIN_OP_TRANSPOSE:
    case DUNLIN_OP_SLICE:
    case DUNLIN_OP_REARRANGE:
        return is_plain;
    case DUNLIN_OP_EXPAND:
        return is_plain && node->n_params == 0;
    case DUNLIN_OP_UNARY:
        return is_plain && node->u.unary.fn == DUNLIN_UNARY_AFFINE && node->u.unary.b == 0.0F;
    default:
        return false;
    }
}

dunlin_join_path dunlin__join_path(const dunlin_joiner *j, uint32_t value, bool is_sole)
{
    dunlin_join_path path = {.value = value, .rotation_at = DUNLIN_NET_NONE};
    while (path.n < DUNLIN_JOIN_MAX_MOVES) {
        const uint32_t node = j->net->values[value].producer;
        if (node == DUNLIN_NET_NONE || (is_sole && j->net->values[value].n_consumers != 1)) {
            break;
        }
        if (is_move(j->net, &j->net->nodes[node])) {
            value = j->net->nodes[node].inputs[0];
        } else if (!is_sole && path.rotation_at == DUNLIN_NET_NONE &&
                   dunlin__join_rotary(j, &j->net->nodes[node], &path.rotation)) {
            path.rotation_at = path.n;
            value = path.rotation.x;
        } else {
            break;
        }
        path.sources[path.n] = value;
        path.nodes[path.n++] = node;
    }
    return path;
}

uint32_t dunlin__join_source(const dunlin_join_path *path, uint32_t n)
{
    return n == 0 ? path->value : path->sources[n - 1];
}

/* The value's own elements, row by row. */
static dunlin_join_view whole(const dunlin_shape *shape)
{
    dunlin_join_view view = {.factor = 1.0F};
    int64_t stride = 1;
    int32_t first = DUNLIN_MAX_DIMS;
    dunlin_atom atoms[DUNLIN_MAX_DIMS];
    for (int32_t i = shape->n_dims - 1; i >= 0; i--) {
        if (shape->dims[i] > 1) {
            atoms[--first] = (dunlin_atom){.size = shape->dims[i], .in_stride = stride, .to = i};
        }
        stride *= shape->dims[i];
    }
    view.atoms.n = DUNLIN_MAX_DIMS - first;
    memcpy(view.atoms.at, atoms + first, (size_t)view.atoms.n * sizeof atoms[0]);
    return view;
}

/* Dimension perm[0] first, then perm[1], and so on. */
static void turn(dunlin_join_view *view, const int32_t *perm, int32_t n_dims)
{
    dunlin_atoms turned = {0};
    for (int32_t d = 0; d < n_dims; d++) {
        for (int32_t i = 0; i < view->atoms.n; i++) {
            if (view->atoms.at[i].to == perm[d]) {
                turned.at[turned.n] = view->atoms.at[i];
                turned.at[turned.n++].to = d;
            }
        }
    }
    view->atoms = turned;
}

/* From element `start` of dimension `axis` on, `n` of them. */
static bool cut(dunlin_join_view *view, int32_t axis, int64_t size, int64_t start, int64_t n)
{
    dunlin_atoms *atoms = &view->atoms;
    int32_t found = -1;
    int32_t n_found = 0;
    for (int32_t i = 0; i < atoms->n; i++) {
        if (atoms->at[i].to == axis) {
            found = i;
            n_found++;
        }
    }
    if (n == size) {
        return true;
    }
    if (n_found != 1) {
        return false;
    }
    view->offset += start * atoms->at[found].in_stride;
    atoms->at[found].size = n;
    if (n == 1) {
        memmove(atoms->at + found, atoms->at + found + 1,
                (size_t)(atoms->n - found - 1) * sizeof atoms->at[0]);
        atoms->n--;
    }
    return true;
}

/* Dimensions of one become those of `shape`. */
static bool repeat(dunlin_join_view *view, const dunlin_shape *from, const dunlin_shape *shape)
{
    dunlin_atoms repeated = {0};
    int32_t i = 0;
    for (int32_t d = 0; d < shape->n_dims; d++) {
        if (from->dims[d] != shape->dims[d]) {
            if (repeated.n == DUNLIN_MAX_ATOMS) {
                return false;
            }
            repeated.at[repeated.n++] = (dunlin_atom){.size = shape->dims[d], .to = d};
        }
        for (; i < view->atoms.n && view->atoms.at[i].to == d; i++) {
            if (repeated.n == DUNLIN_MAX_ATOMS) {
                return false;
            }
            repeated.at[repeated.n++] = view->atoms.at[i];
        }
    }
    view->atoms = repeated;
    return true;
}

static bool apply(const dunlin_joiner *j, const dunlin_net_node *node, dunlin_join_view *view)
{
    const dunlin_shape *from = &j->net->values[node->inputs[0]].shape;
    const dunlin_shape *to = &j->net->values[node->output].shape;
    const dunlin_rearrangement *r = &node->u.rearrange.to;
    switch ((int)node->kind) {
    case DUNLIN_OP_RESHAPE:
    case DUNLIN_OP_FLATTEN:
        return dunlin__atoms_cut(&view->atoms, to);
    case DUNLIN_OP_TRANSPOSE:
        turn(view, node->u.transpose.perm, from->n_dims);
        return true;
    case DUNLIN_OP_SLICE:
        return cut(view, node->u.slice.axis, from->dims[node->u.slice.axis], node->u.slice.start,
                   node->u.slice.end - node->u.slice.start);
    case DUNLIN_OP_EXPAND:
        return from->n_dims == to->n_dims && repeat(view, from, to);
    case DUNLIN_OP_REARRANGE:
        if (!dunlin__atoms_cut(&view->atoms, &r->split)) {
            return false;
        }
        turn(view, r->perm, r->split.n_dims);
        return dunlin__atoms_cut(&view->atoms, to);
    case DUNLIN_OP_UNARY:
        view->factor *= node->u.unary.a;
        return true;
    default:
        return false;
    }
}

bool dunlin__join_view(const dunlin_joiner *j, const dunlin_join_path *path, uint32_t from,
                       uint32_t n, dunlin_join_view *out)
{
    *out = whole(&j->net->values[dunlin__join_source(path, n)].shape);
    for (uint32_t i = n; i > from; i--) {
        if (i - 1 != path->rotation_at && !apply(j, &j->net->nodes[path->nodes[i - 1]], out)) {
            return false;
        }
    }
    dunlin__join_atoms(&out->atoms);
    return true;
}

void dunlin__join_atoms(dunlin_atoms *atoms)
{
    int32_t n = 0;
    for (int32_t i = 0; i < atoms->n; i++) {
        const dunlin_atom *atom = &atoms->at[i];
        if (atom->size == 1) {
            continue;
        }
        if (n > 0 && atoms->at[n - 1].in_stride == atom->in_stride * atom->size) {
            atoms->at[n - 1].size *= atom->size;
            atoms->at[n - 1].in_stride = atom->in_stride;
            continue;
        }
        atoms->at[n++] = *atom;
    }
    atoms->n = n;
}

bool dunlin__join_is_over(const dunlin_join_view *view, const dunlin_atoms *atoms)
{
    dunlin_atoms wanted = *atoms;
    dunlin__join_atoms(&wanted);
    bool is_same = wanted.n == view->atoms.n;
    for (int32_t i = 0; is_same && i < wanted.n; i++) {
        is_same = wanted.at[i].size == view->atoms.at[i].size &&
                  wanted.at[i].in_stride == view->atoms.at[i].in_stride;
    }
    return is_same;
}
