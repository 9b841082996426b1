/*
 * precision.h - in which numbers a network is trained: a row each. What is no row is float32.
 *
 * A row says which formats weights, activations, errors and sums have, how scales follow the
 * values, and which operators there are. Which operators compute in integers, and which in float,
 * is part of a precision's definition; nothing of it is found by measuring. In "niti" all do, and
 * the step's only floats are its input, before it is rounded, and the loss that is reported.
 */
#ifndef DUNLIN_INTEGER_PRECISION_H
#define DUNLIN_INTEGER_PRECISION_H

#include "graph/build.h"

struct dunlin_integer;

/* One operator of a precision. */
typedef struct dunlin_integer_row {
    /* Why the node cannot be computed so; NULL: it can. */
    const char *(*refuse_fn)(const dunlin_net *net, const dunlin_net_node *node);
    void (*forward_fn)(struct dunlin_integer *integer, const dunlin_net_node *node);
    /* For nodes whose output has an error and that need one for an input or a parameter. */
    void (*backward_fn)(struct dunlin_integer *integer, const dunlin_net_node *node);
} dunlin_integer_row;

#define DUNLIN_GRAD_BITS_LEAST 1
#define DUNLIN_GRAD_BITS_MOST 7

struct dunlin_precision {
    const char *name;
    dunlin_dtype weights, activations, errors;
    dunlin_dtype sums,
        wide_sums;        /* of weight gradients over a batch; where the first is too small */
    int32_t grad_bits;    /* of an update, unless asked otherwise */
    int64_t n_calibrated; /* examples of the first batch, at most */
    const dunlin_integer_row *const *rows; /* DUNLIN_OP_N_KINDS; NULL: there is none */
};

/* NULL, "" and "fp32" are float32 (*out NULL); UNSUPPORTED for a name that this build has not. */
DUNLIN_NODISCARD dunlin_status dunlin__precision_find(const char *name,
                                                      const dunlin_precision **out,
                                                      dunlin_error *error);
/* The name of a precision; "fp32" for NULL. */
const char *dunlin__precision_name(const dunlin_precision *precision);
/* UNSUPPORTED, with the nodes and why, for a network that has what the precision has not. */
DUNLIN_NODISCARD dunlin_status dunlin__precision_check(const dunlin_precision *precision,
                                                       const dunlin_net *net, dunlin_loss loss,
                                                       dunlin_error *error);

#endif
