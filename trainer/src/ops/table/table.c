/*
 * table.c - the list of operators. A new one is a file with its row, and a line here.
 */
#include "ops/common/support.h"

#include <string.h>

static const dunlin_op_row *const rows[DUNLIN_OP_N_KINDS] = {
    [DUNLIN_OP_CONV] = &dunlin__op_conv,
    [DUNLIN_OP_DENSE] = &dunlin__op_dense,
    [DUNLIN_OP_BATCH_NORM] = &dunlin__op_batch_norm,
    [DUNLIN_OP_CLIP] = &dunlin__op_clip,
    [DUNLIN_OP_MAX_POOL] = &dunlin__op_max_pool,
    [DUNLIN_OP_AVERAGE_POOL] = &dunlin__op_average_pool,
    [DUNLIN_OP_GLOBAL_AVERAGE_POOL] = &dunlin__op_global_average_pool,
    [DUNLIN_OP_ADD] = &dunlin__op_add,
    [DUNLIN_OP_CONCAT] = &dunlin__op_concat,
    [DUNLIN_OP_FLATTEN] = &dunlin__op_flatten,
    [DUNLIN_OP_DROPOUT] = &dunlin__op_dropout,
    [DUNLIN_OP_LAYER_NORM] = &dunlin__op_layer_norm,
    [DUNLIN_OP_EMBEDDING] = &dunlin__op_embedding,
    [DUNLIN_OP_MATMUL] = &dunlin__op_matmul,
    [DUNLIN_OP_SOFTMAX] = &dunlin__op_softmax,
    [DUNLIN_OP_ATTENTION] = &dunlin__op_attention,
    [DUNLIN_OP_TRANSPOSE] = &dunlin__op_transpose,
    [DUNLIN_OP_RESHAPE] = &dunlin__op_reshape,
    [DUNLIN_OP_SLICE] = &dunlin__op_slice,
    [DUNLIN_OP_MEAN] = &dunlin__op_mean,
    [DUNLIN_OP_UNARY] = &dunlin__op_unary,
    [DUNLIN_OP_BINARY] = &dunlin__op_binary,
    [DUNLIN_OP_RAMP] = &dunlin__op_ramp,
    [DUNLIN_OP_GROUP_NORM] = &dunlin__op_group_norm,
    [DUNLIN_OP_DENSE_TRANSPOSED] = &dunlin__op_dense_transposed,
    [DUNLIN_OP_PAD] = &dunlin__op_pad,
    [DUNLIN_OP_LP_POOL] = &dunlin__op_lp_pool,
    [DUNLIN_OP_RESPONSE_NORM] = &dunlin__op_response_norm,
    [DUNLIN_OP_STACK] = &dunlin__op_stack,
    [DUNLIN_OP_REDUCE] = &dunlin__op_reduce,
    [DUNLIN_OP_EXPAND] = &dunlin__op_expand,
    [DUNLIN_OP_REARRANGE] = &dunlin__op_rearrange,
    [DUNLIN_OP_PRELU] = &dunlin__op_prelu,
    [DUNLIN_OP_CONV_TRANSPOSED] = &dunlin__op_conv_transposed,
    [DUNLIN_OP_RESIZE] = &dunlin__op_resize,
};

const dunlin_op_row *dunlin__op_row(dunlin_op_kind kind)
{
    return (unsigned)kind < DUNLIN_OP_N_KINDS ? rows[kind] : NULL;
}

const dunlin_op_row *dunlin__op_row_for_onnx(const char *op_type)
{
    for (int kind = 0; kind < DUNLIN_OP_N_KINDS; kind++) {
        for (const char *const *name = rows[kind]->onnx_names; *name != NULL; name++) {
            if (strcmp(*name, op_type) == 0) {
                return rows[kind];
            }
        }
    }
    return NULL;
}
