/*
 * atoms.c - see atoms.h.
 *
 * Invariant: cutting changes no order: the elements that a list goes through stay the same.
 */
#include "atoms.h"

#include <string.h>

/* Puts an atom in front of what is there, in a list that is filled from its end. */
static bool put_front(dunlin_atoms *list, int32_t *first, const dunlin_atom *atom)
{
    if (*first == 0) {
        return false;
    }
    list->at[--*first] = *atom;
    return true;
}

bool dunlin__atoms_cut(dunlin_atoms *atoms, const dunlin_shape *shape)
{
    dunlin_atoms cut = {0};
    int32_t first = DUNLIN_MAX_ATOMS;
    int32_t dim = shape->n_dims - 1;
    int64_t left = dim >= 0 ? shape->dims[dim] : 1; /* of the dimension */
    for (int32_t i = atoms->n - 1; i >= 0; i--) {
        dunlin_atom atom = atoms->at[i];
        while (atom.size > 1) {
            while (left == 1 && dim > 0) {
                left = shape->dims[--dim];
            }
            if (left <= 1 || (atom.size % left != 0 && left % atom.size != 0)) {
                return false;
            }
            dunlin_atom part = atom;
            part.size = atom.size < left ? atom.size : left;
            part.to = dim;
            if (!put_front(&cut, &first, &part)) {
                return false;
            }
            left /= part.size;
            atom.size /= part.size;
            atom.in_stride *= part.size;
            atom.out_stride *= part.size;
        }
    }
    cut.n = DUNLIN_MAX_ATOMS - first;
    memmove(cut.at, cut.at + first, (size_t)cut.n * sizeof cut.at[0]);
    *atoms = cut;
    return true;
}

/* The atoms of part 0 of the split, then of part 1, and so on, in the order of `order`. */
static void group(dunlin_atoms *atoms, const int32_t *order, int32_t n_parts, bool is_by_to)
{
    dunlin_atoms grouped = {0};
    for (int32_t p = 0; p < n_parts; p++) {
        for (int32_t i = 0; i < atoms->n; i++) {
            const int32_t part = is_by_to ? atoms->at[i].to : atoms->at[i].from;
            if (part == order[p]) {
                grouped.at[grouped.n++] = atoms->at[i];
            }
        }
    }
    *atoms = grouped;
}

static dunlin_atoms split_of(const dunlin_shape *split)
{
    dunlin_atoms atoms = {0};
    for (int32_t i = 0; i < split->n_dims; i++) {
        if (split->dims[i] > 1) {
            atoms.at[atoms.n++] = (dunlin_atom){.size = split->dims[i], .from = i};
        }
    }
    return atoms;
}

/* Of atoms in the order of a value: how far apart its elements lie. */
static bool lay(dunlin_atoms *atoms, const dunlin_shape *shape, dunlin_net_layout layout,
                bool is_out)
{
    int64_t strides[3] = {1, 0, 0};
    const bool is_image = layout == DUNLIN_LAYOUT_IMAGE;
    if (is_image) {
        strides[1] = shape->n_dims > 2 ? shape->dims[2] * shape->dims[0] : shape->dims[0];
        strides[2] = shape->dims[0];
        if (!dunlin__atoms_cut(atoms, shape)) {
            return false;
        }
    }
    for (int32_t i = atoms->n - 1; i >= 0; i--) {
        dunlin_atom *atom = &atoms->at[i];
        int64_t *stride = &strides[is_image ? atom->to : 0];
        *(is_out ? &atom->out_stride : &atom->in_stride) = *stride;
        *stride *= atom->size;
    }
    return true;
}

bool dunlin__atoms_of(const dunlin_net_value *x, dunlin_net_layout layout,
                      const dunlin_rearrangement *r, dunlin_atoms *out_atoms)
{
    dunlin_atoms atoms = split_of(&r->split);
    if (!lay(&atoms, &x->shape, x->layout, false)) {
        return false;
    }
    group(&atoms, r->perm, r->split.n_dims, false);
    if (!lay(&atoms, &r->shape, layout, true)) {
        return false;
    }
    *out_atoms = atoms;
    return true;
}

bool dunlin__atoms_are_still(const dunlin_atoms *atoms)
{
    bool is_still = true;
    for (int32_t i = 0; i < atoms->n; i++) {
        is_still = is_still && atoms->at[i].in_stride == atoms->at[i].out_stride;
    }
    return is_still;
}

dunlin_shape dunlin__rearranged(const dunlin_rearrangement *r)
{
    dunlin_shape shape = {.n_dims = r->split.n_dims};
    for (int32_t i = 0; i < shape.n_dims; i++) {
        shape.dims[i] = r->split.dims[r->perm[i]];
    }
    return shape;
}

bool dunlin__is_in_order(const dunlin_rearrangement *r)
{
    bool is_in_order = true;
    for (int32_t i = 0; i < r->split.n_dims; i++) {
        is_in_order = is_in_order && r->perm[i] == i;
    }
    return is_in_order;
}

/* Atoms in the order of the output, of which in_stride is that of a row-major input, as split and
 * perm. Neighbours on both sides are one dimension where no border of a shape is between them. */
static bool write_down(dunlin_atoms *atoms, const dunlin_shape *in, const dunlin_shape *out_shape,
                       dunlin_rearrangement *out)
{
    int32_t order[DUNLIN_MAX_ATOMS]; /* atom at place i of the input */
    dunlin_atoms trial = *atoms;
    if (dunlin__atoms_cut(&trial, out_shape)) {
        *atoms = trial;
    }
    for (int32_t i = 0; i < atoms->n; i++) {
        int32_t at = i;
        for (; at > 0 && atoms->at[order[at - 1]].in_stride < atoms->at[i].in_stride; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    dunlin_atoms sorted = {.n = atoms->n};
    for (int32_t i = 0; i < atoms->n; i++) {
        sorted.at[i] = atoms->at[order[i]];
        sorted.at[i].from = order[i];
    }
    trial = sorted;
    if (dunlin__atoms_cut(&trial, in)) {
        sorted = trial;
    }
    if (sorted.n >= DUNLIN_MAX_DIMS) {
        return false;
    }
    *out = (dunlin_rearrangement){.split = {.n_dims = sorted.n}, .shape = *out_shape};
    int32_t n = 0;
    for (int32_t i = 0; i < atoms->n; i++) {
        for (int32_t k = 0; k < sorted.n; k++) {
            if (sorted.at[k].from == i) {
                out->perm[n++] = k;
            }
        }
    }
    for (int32_t k = 0; k < sorted.n; k++) {
        out->split.dims[k] = sorted.at[k].size;
    }
    if (sorted.n == 0) {
        out->split = (dunlin_shape){1, {1}};
        out->perm[0] = 0;
    }
    return true;
}

/* Atoms that follow each other on both sides become one. */
static void merge(dunlin_atoms *atoms)
{
    dunlin_atoms merged = {0};
    for (int32_t i = 0; i < atoms->n; i++) {
        dunlin_atom *last = merged.n > 0 ? &merged.at[merged.n - 1] : NULL;
        const dunlin_atom *atom = &atoms->at[i];
        if (last != NULL && last->in_stride == atom->in_stride * atom->size) {
            last->size *= atom->size;
            last->in_stride = atom->in_stride;
        } else {
            merged.at[merged.n++] = *atom;
        }
    }
    *atoms = merged;
}

bool dunlin__rearrange_both(const dunlin_shape *in, const dunlin_rearrangement *a,
                            const dunlin_rearrangement *b, dunlin_rearrangement *out)
{
    dunlin_atoms atoms = split_of(&a->split);
    (void)lay(&atoms, in, DUNLIN_LAYOUT_PLAIN, false);
    group(&atoms, a->perm, a->split.n_dims, false);
    if (!dunlin__atoms_cut(&atoms, &b->split)) {
        return false;
    }
    group(&atoms, b->perm, b->split.n_dims, true);
    merge(&atoms);
    return write_down(&atoms, in, &b->shape, out);
}
