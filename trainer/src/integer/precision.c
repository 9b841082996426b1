/*
 * precision.c - the table of precisions, and the check of a network against one.
 *
 * Invariant: a network that passes has no node without a row, and no parameter that two nodes read.
 */
#include "precision.h"

#include "ops/common/op.h"
#include "rows.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

#define MAX_CAUSES 4

/*
 * NITI (Wang et al., IEEE TPDS 2022, arXiv 2009.13108): int8 weights, activations and errors with
 * one exponent a tensor, sums of int32, updates of a few bits. Beside its definition: biases (see
 * linear.c), averages, sums and concatenations with aligned exponents, dropout of one half, scales
 * that are fixed before a batch (see site.h), PstoShift for the error of the logits, and weights
 * that grow beyond their first exponent (see int_update.c).
 */
static const dunlin_integer_row *const niti_rows[DUNLIN_OP_N_KINDS] = {
    [DUNLIN_OP_CONV] = &dunlin__integer_conv,
    [DUNLIN_OP_DENSE] = &dunlin__integer_dense,
    [DUNLIN_OP_CLIP] = &dunlin__integer_clip,
    [DUNLIN_OP_MAX_POOL] = &dunlin__integer_max_pool,
    [DUNLIN_OP_AVERAGE_POOL] = &dunlin__integer_average_pool,
    [DUNLIN_OP_GLOBAL_AVERAGE_POOL] = &dunlin__integer_average_pool,
    [DUNLIN_OP_ADD] = &dunlin__integer_add,
    [DUNLIN_OP_CONCAT] = &dunlin__integer_concat,
    [DUNLIN_OP_FLATTEN] = &dunlin__integer_flatten,
    [DUNLIN_OP_DROPOUT] = &dunlin__integer_dropout,
};

/*
 * Zhao et al., "Distribution Adaptive INT8 Quantization for Training CNNs" (AAAI 2021, arXiv
 * 2102.04782): operands of convolutions and dense layers in int8, all else in float32. Values,
 * weights and the errors that go on to the input have one range a tensor; the errors that the
 * gradient of the weights is made of have one for each output channel, by how that channel's are
 * spread. Beside its definition: ranges are those of the batches before.
 */
static const dunlin_operands adaptive_int8 = {
    .weights = {.kept = 1.0F},
    .values = {.kept = 1.0F},
    .errors = {.kept = 1.0F},
    .weight_errors = {.is_by_channel = true, .rule = DUNLIN_RANGE_DISTRIBUTION, .kept = 1.0F},
};

/*
 * Zhang et al., "Fixed-Point Back-Propagation Training" (CVPR 2020, arXiv 1911.00361): units are
 * powers of two; values and weights have int8, errors int8 or, where that changes their mean
 * magnitude by too much, 16 bits. The update is in float32. Beside its definition: a tensor's
 * errors stay at 16 bits once they have them, of which 15 hold the magnitude's and the sign's.
 */
static const dunlin_operands adaptive_fixed = {
    .weights = {.unit = DUNLIN_UNIT_POWER, .kept = 1.0F},
    .values = {.unit = DUNLIN_UNIT_POWER, .kept = 1.0F},
    .errors = {.unit = DUNLIN_UNIT_POWER, .may_widen = true, .kept = 1.0F},
};

/*
 * Zhou et al., "Octo: INT8 Training with Loss-aware Compensation and Backward Quantization for Tiny
 * On-device Learning" (USENIX ATC 2021): one range a tensor, of errors 0.95 of it (parameterised
 * range clipping); weights are kept, and updated, in float32, as its public code has them. Beside
 * its definition: units have no zero point, rounding is to the nearest, and there are no
 * compensation tensors, which are as large as the activations.
 */
static const dunlin_operands octo = {
    .weights = {.kept = 1.0F},
    .values = {.kept = 1.0F},
    .errors = {.kept = 0.95F},
};

/*
 * Yang et al., "Training High-Performance and Large-Scale Deep Neural Networks with Full 8-bit
 * Integers" (WAGEUBN; Neural Networks 2020, arXiv 1909.02384): weights are kept in 24 bits within
 * +-1 and multiplied in 8 (direct quantisation), values and errors have shift quantisation (a power
 * of two a tensor), gradients of weights constant quantisation, rounded at random. Beside its
 * definition: batch norm, momentum and the rate are float32 (it has 16, 13 and 10 bits), errors
 * have no flag bit.
 */
static const dunlin_operands wageubn = {
    .weights = {.unit = DUNLIN_UNIT_FIXED, .kept = 1.0F},
    .values = {.unit = DUNLIN_UNIT_NEAREST, .kept = 1.0F},
    .errors = {.unit = DUNLIN_UNIT_NEAREST, .kept = 1.0F},
    .has_constant_gradients = true,
    .update_bits = 24,
};

/*
 * Zhong et al., "Exploring the Potential of Low-bit Training of Convolutional Neural Networks"
 * (multi-level scaling, MLS; arXiv 2006.02745): groups have scales of their own, with one bit
 * behind the leading one. Groups are here where a sum can be taken apart from its scale: the output
 * channels of the errors that gradients are made of; everything else is one group a tensor.
 * Elements are int8, where theirs are floats of a few bits; the scale of a tensor is that of its
 * groups.
 */
static const dunlin_operands mls = {
    .weights = {.unit = DUNLIN_UNIT_GROUP, .kept = 1.0F},
    .values = {.unit = DUNLIN_UNIT_GROUP, .kept = 1.0F},
    .errors = {.unit = DUNLIN_UNIT_GROUP, .kept = 1.0F},
    .weight_errors = {.is_by_channel = true, .unit = DUNLIN_UNIT_GROUP, .kept = 1.0F},
};

/* A precision of products: int8 between floats, its ranges from a first calibration on. */
#define PRODUCTS(of_name, of_operands)                                                             \
    {                                                                                              \
        .name = (of_name), .weights = DUNLIN_F32, .activations = DUNLIN_I8, .errors = DUNLIN_I8,   \
        .sums = DUNLIN_I32, .wide_sums = DUNLIN_I64, .n_calibrated = 32,                           \
        .products = &(of_operands)                                                                 \
    }

static const dunlin_precision precisions[] = {
    {.name = "niti",
     .weights = DUNLIN_I8,
     .activations = DUNLIN_I8,
     .errors = DUNLIN_I8,
     .sums = DUNLIN_I32,
     .wide_sums = DUNLIN_I64,
     .grad_bits = 5,
     .weight_growth = 64,
     .n_calibrated = 32,
     .rows = niti_rows},
    /* NITI whose weights gather their updates in 16 bits, as its paper has it for ImageNet. */
    {.name = "niti16",
     .weights = DUNLIN_I8,
     .activations = DUNLIN_I8,
     .errors = DUNLIN_I8,
     .sums = DUNLIN_I32,
     .wide_sums = DUNLIN_I64,
     .grad_bits = 5,
     .weight_growth = 64,
     .has_low_bytes = true,
     .n_calibrated = 32,
     .rows = niti_rows},
    PRODUCTS("adaptive-int8", adaptive_int8),
    PRODUCTS("adaptive-fixed", adaptive_fixed),
    PRODUCTS("octo", octo),
    PRODUCTS("wageubn", wageubn),
    PRODUCTS("mls", mls),
};

static const size_t n_precisions = sizeof precisions / sizeof precisions[0];

const char *dunlin__precision_name(const dunlin_precision *precision)
{
    return precision != NULL ? precision->name : "fp32";
}

dunlin_status dunlin__precision_find(const char *name, const dunlin_precision **out,
                                     dunlin_error *error)
{
    *out = NULL;
    if (name == NULL || name[0] == '\0' || strcmp(name, "fp32") == 0) {
        return DUNLIN_OK;
    }
    for (size_t i = 0; i < n_precisions; i++) {
        if (strcmp(precisions[i].name, name) == 0) {
            *out = &precisions[i];
            return DUNLIN_OK;
        }
    }
    char names[200] = "fp32";
    size_t at = strlen(names);
    for (size_t i = 0; i < n_precisions && at < sizeof names; i++) {
        const int n = snprintf(names + at, sizeof names - at, "%s%s",
                               i + 1 < n_precisions ? ", " : " and ", precisions[i].name);
        at += n > 0 ? (size_t)n : 0;
    }
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                        "precision \"%.40s\" is not in this build; it has %s", name, names);
}

/* Nodes that are refused for one reason. */
typedef struct cause {
    const char *op;
    const char *reason;
    const char *node; /* the first */
    size_t n;
} cause;

static void add_cause(cause *causes, size_t *n_causes, const char *op, const char *reason,
                      const char *node)
{
    for (size_t i = 0; i < *n_causes; i++) {
        if (strcmp(causes[i].op, op) == 0 && strcmp(causes[i].reason, reason) == 0) {
            causes[i].n++;
            return;
        }
    }
    if (*n_causes < MAX_CAUSES) {
        causes[(*n_causes)++] = (cause){.op = op, .reason = reason, .node = node, .n = 1};
    }
}

static bool is_shared(const dunlin_net *net, uint32_t param)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        for (uint32_t k = 0; k < net->nodes[i].n_params; k++) {
            n += net->nodes[i].params[k] == param ? 1 : 0;
        }
    }
    return n > 1;
}

static const char *reason_of(const dunlin_precision *precision, const dunlin_net *net,
                             const dunlin_net_node *node)
{
    if (precision->products != NULL) {
        const bool is_product = node->kind == DUNLIN_OP_CONV || node->kind == DUNLIN_OP_DENSE;
        return is_product ? dunlin__integer_conv.refuse_fn(net, node) : NULL;
    }
    const dunlin_integer_row *row = precision->rows[node->kind];
    if (row == NULL) {
        return "there is no such operator in integers";
    }
    for (uint32_t k = 0; k < node->n_params; k++) {
        if (node->params[k] != DUNLIN_NET_NONE && is_shared(net, node->params[k])) {
            return "a parameter is read by several nodes";
        }
    }
    return row->refuse_fn != NULL ? row->refuse_fn(net, node) : NULL;
}

dunlin_status dunlin__precision_check(const dunlin_precision *precision, const dunlin_net *net,
                                      dunlin_loss loss, dunlin_error *error)
{
    cause causes[MAX_CAUSES];
    size_t n_causes = 0;
    if (precision->products == NULL && loss != DUNLIN_LOSS_CROSS_ENTROPY) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                            "precision %s has cross-entropy with labels alone, not loss %d",
                            precision->name, (int)loss);
    }
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        const char *reason = reason_of(precision, net, node);
        if (reason != NULL) {
            add_cause(causes, &n_causes, dunlin__op_row(node->kind)->name, reason, node->name);
        }
    }
    if (n_causes == 0) {
        return DUNLIN_OK;
    }
    char text[DUNLIN_ERROR_TEXT_BYTES] = "";
    size_t at = 0;
    for (size_t i = 0; i < n_causes && at < sizeof text; i++) {
        const int n = snprintf(text + at, sizeof text - at, "%s%s '%.40s' (%zu of them): %s",
                               i == 0 ? "" : "; ", causes[i].op, causes[i].node, causes[i].n,
                               causes[i].reason);
        at += n > 0 ? (size_t)n : 0;
    }
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                        "the network cannot be trained in precision %s: %s", precision->name, text);
}
