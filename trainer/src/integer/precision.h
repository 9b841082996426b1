/*
 * precision.h - in which numbers a network is trained: a row each. What is no row is float32.
 *
 * A row says which formats weights, activations, errors and sums have, how scales follow the
 * values, and which operators there are. Which operators compute in integers, and which in float,
 * is part of a precision's definition; nothing of it is found by measuring. In "niti" all do, and
 * the step's only floats are its input, before it is rounded, and the loss that is reported. In the
 * other rows the *products* do: those of convolutions and dense layers, whose operands are rounded
 * to integers; what is between them, the gradients and the update are float32.
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

/* How a range follows what a batch had. */
typedef enum dunlin_range_rule {
    /* The largest magnitude: up to it at once, down by an eighth of the way. */
    DUNLIN_RANGE_LARGEST = 0,
    /* The same where the values are spread as a normal distribution; a fifth of the range and four
     * fifths of the largest where most are small and few are large. Source: Zhao et al.,
     * "Distribution Adaptive INT8 Quantization for Training CNNs" (AAAI 2021). */
    DUNLIN_RANGE_DISTRIBUTION
} dunlin_range_rule;

/* What a range makes of a unit. */
typedef enum dunlin_unit_rule {
    DUNLIN_UNIT_REAL = 0, /* a part of 127 of it */
    DUNLIN_UNIT_POWER,    /* the least power of two of which 127 hold it */
    DUNLIN_UNIT_GROUP,    /* the same, of powers of two and one and a half times these */
    /* 2^-7 times the power of two that is nearest to it: what is beyond 127 units is clipped */
    DUNLIN_UNIT_NEAREST,
    DUNLIN_UNIT_FIXED /* 2^-7, whatever it is */
} dunlin_unit_rule;

/* How an operand of a product is rounded to int8: q = value / unit. */
typedef struct dunlin_operand {
    bool is_by_channel; /* a range for each output channel */
    dunlin_unit_rule unit;
    /* 15 bits and a sign, as two int8, from the batch on after which 7 were too few. */
    bool may_widen;
    dunlin_range_rule rule;
    float kept; /* of the range; what is beyond is clipped */
} dunlin_operand;

/* The operands of products: in both passes, or in one. */
typedef struct dunlin_operands {
    dunlin_operand weights; /* of all a tensor's values, in each step */
    dunlin_operand values;
    dunlin_operand errors; /* for the error of the input */
    /* for the gradient of the weights, where it is by channel; else that has the same errors */
    dunlin_operand weight_errors;
    /* Constant quantisation of the weights' gradients: only their proportions are kept, in 7 bits
     * and a sign, the largest near 2^-7. Source: Yang et al., WAGEUBN. */
    bool has_constant_gradients;
    int32_t update_bits; /* of a weight, within +-1, as it is kept; 0: float32 */
} dunlin_operands;

#define DUNLIN_GRAD_BITS_LEAST 0
#define DUNLIN_GRAD_BITS_MOST 7
#define DUNLIN_WEIGHT_GROWTH_LEAST 2
#define DUNLIN_WEIGHT_GROWTH_MOST 65536

struct dunlin_precision {
    const char *name;
    dunlin_dtype weights, activations, errors;
    dunlin_dtype sums,
        wide_sums;     /* of weight gradients over a batch; where the first is too small */
    int32_t grad_bits; /* of an update, unless asked otherwise */
    /* Weights of which more than one part in so many stands at the ends of its range get the next
     * exponent, unless asked otherwise. */
    int32_t weight_growth;
    bool has_low_bytes;   /* weights are kept in 16 bits, of which the upper eight are multiplied */
    int64_t n_calibrated; /* examples of the first batch, at most */
    const dunlin_integer_row *const *rows; /* DUNLIN_OP_N_KINDS; NULL: there is none */
    const dunlin_operands *products;       /* NULL: all is in integers */
};

/* All of a step is in integers: weights are int8, and the rate is a number of bits. */
static inline bool dunlin__precision_is_whole(const dunlin_precision *precision)
{
    return precision != NULL && precision->products == NULL;
}

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
