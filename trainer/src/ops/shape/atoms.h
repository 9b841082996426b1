/*
 * atoms.h - dimensions cut and put in another order: the arithmetic of moves of a sample's
 * elements.
 *
 * An atom is a run of elements that lie one stride apart. A list of atoms goes through elements
 * like nested loops, the last one innermost.
 */
#ifndef DUNLIN_OPS_ATOMS_H
#define DUNLIN_OPS_ATOMS_H

#include "net/net.h"

#define DUNLIN_MAX_ATOMS 32

typedef struct dunlin_atom {
    int64_t size;
    int64_t in_stride, out_stride; /* floats */
    int32_t from;                  /* the part of the split that it is of */
    int32_t to;                    /* the dimension, of what the list was cut by last */
} dunlin_atom;

typedef struct dunlin_atoms {
    int32_t n;
    dunlin_atom at[DUNLIN_MAX_ATOMS];
} dunlin_atoms;

/*
 * Cuts atoms where a dimension of `shape`, of as many elements, ends, so that each lies in one.
 * False if the borders do not nest (6 x 4 as 8 x 3), or there are too many.
 */
bool dunlin__atoms_cut(dunlin_atoms *atoms, const dunlin_shape *shape);

/*
 * The rearrangement as atoms in the order of the output, with the strides of how input and output
 * lie; dimensions of one are left out. False if one pass of strides cannot do it.
 */
bool dunlin__atoms_of(const dunlin_net_value *x, dunlin_net_layout layout,
                      const dunlin_rearrangement *r, dunlin_atoms *out_atoms);
/* Nothing moves: every element stays where it lies. */
bool dunlin__atoms_are_still(const dunlin_atoms *atoms);

/* First `a`, whose input is `in`, then `b`; written with as few dimensions as the shapes at both
 * ends allow. False if that is no single rearrangement. */
bool dunlin__rearrange_both(const dunlin_shape *in, const dunlin_rearrangement *a,
                            const dunlin_rearrangement *b, dunlin_rearrangement *out);

/* Sizes of the split in the order of the output. */
dunlin_shape dunlin__rearranged(const dunlin_rearrangement *r);
bool dunlin__is_in_order(const dunlin_rearrangement *r);

#endif
