/*
 * join_views.h - how the elements of a value lie in one that it was cut and moved from.
 */
#ifndef DUNLIN_CONVERT_JOIN_VIEWS_H
#define DUNLIN_CONVERT_JOIN_VIEWS_H

#include "join.h"
#include "ops/shape/atoms.h"

#define DUNLIN_JOIN_MAX_MOVES 24

/* Rotary positions of x, whose last two dimensions are those of both tables (parameters). */
typedef struct dunlin_join_rotation {
    uint32_t x;
    uint32_t cosines, sines;
} dunlin_join_rotation;

/* Nodes that cut, move, repeat or scale elements, from `value` back; node 0 makes the value. One of
 * them may stand for rotary positions. */
typedef struct dunlin_join_path {
    uint32_t value;
    uint32_t nodes[DUNLIN_JOIN_MAX_MOVES];
    uint32_t sources[DUNLIN_JOIN_MAX_MOVES]; /* what each is made of */
    uint32_t n;
    uint32_t rotation_at; /* a node; DUNLIN_NET_NONE: there is none */
    dunlin_join_rotation rotation;
} dunlin_join_path;

/* Element (loops of `atoms`, in_stride apart) of the value is `factor` times that of the source. */
typedef struct dunlin_join_view {
    dunlin_atoms atoms; /* neighbours that one loop can go over are one */
    int64_t offset;
    float factor;
} dunlin_join_view;

/* join_rotary.c: the node adds what rotary positions are written out in. */
bool dunlin__join_rotary(const dunlin_joiner *j, const dunlin_net_node *node,
                         dunlin_join_rotation *out);

/* All such nodes one after another; `is_sole`: only those that nothing else reads. */
dunlin_join_path dunlin__join_path(const dunlin_joiner *j, uint32_t value, bool is_sole);

/* The value after `n` nodes back: 0 is the path's own. */
uint32_t dunlin__join_source(const dunlin_join_path *path, uint32_t n);

/* The value `from` nodes back as it lies in that `n` nodes back. False if strides cannot say it. */
bool dunlin__join_view(const dunlin_joiner *j, const dunlin_join_path *path, uint32_t from,
                       uint32_t n, dunlin_join_view *out);

/* Neighbours become one; loops over one element are left out. */
void dunlin__join_atoms(dunlin_atoms *atoms);

/* The view goes through these loops, and through no other. */
bool dunlin__join_is_over(const dunlin_join_view *view, const dunlin_atoms *atoms);

#endif
