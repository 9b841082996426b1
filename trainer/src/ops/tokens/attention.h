/*
 * attention.h - what the operator and its ONNX form share: an attention node in numbers.
 */
#ifndef DUNLIN_OPS_ATTENTION_H
#define DUNLIN_OPS_ATTENTION_H

#include "ops/common/op.h"

#define DUNLIN_ATTENTION_MAX_PARTS 3 /* q, k and v */

typedef struct dunlin_attention_params {
    dunlin_attention_shape shape;
    bool is_packed; /* one tensor holds q, k and v side by side */
    bool has_mask;
    bool has_fixed;
    bool has_tables;                           /* of rotary positions */
    bool has_grad[DUNLIN_ATTENTION_MAX_PARTS]; /* backward: of q, k, v */
} dunlin_attention_params;

/* Inputs that hold q, k and v: 1 or 3. */
uint32_t dunlin__attention_n_parts(const dunlin_net_node *node);
/* Of a node whose inputs have been inferred. */
dunlin_attention_params dunlin__attention_params_of(const dunlin_net *net,
                                                    const dunlin_net_node *node);

/* attention_write.c: the row's from_onnx_fn and to_onnx_fn. */
dunlin_status dunlin__attention_from_onnx(dunlin_onnx_node *onnx, dunlin_net *net,
                                          dunlin_net_node *node);
void dunlin__attention_to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net,
                               const dunlin_net_node *node);

#endif
