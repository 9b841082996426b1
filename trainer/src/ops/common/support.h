/*
 * support.h - what the operators share: the list of rows, checks with one wording, windows of
 * convolution and pooling, and the two kernels that convolution and dense layers have in common.
 */
#ifndef DUNLIN_OPS_SUPPORT_H
#define DUNLIN_OPS_SUPPORT_H

#include "op.h"

extern const dunlin_op_row dunlin__op_conv;
extern const dunlin_op_row dunlin__op_dense;
extern const dunlin_op_row dunlin__op_batch_norm;
extern const dunlin_op_row dunlin__op_clip;
extern const dunlin_op_row dunlin__op_max_pool;
extern const dunlin_op_row dunlin__op_average_pool;
extern const dunlin_op_row dunlin__op_global_average_pool;
extern const dunlin_op_row dunlin__op_add;
extern const dunlin_op_row dunlin__op_concat;
extern const dunlin_op_row dunlin__op_flatten;
extern const dunlin_op_row dunlin__op_dropout;
extern const dunlin_op_row dunlin__op_layer_norm;
extern const dunlin_op_row dunlin__op_embedding;
extern const dunlin_op_row dunlin__op_matmul;
extern const dunlin_op_row dunlin__op_softmax;
extern const dunlin_op_row dunlin__op_attention;
extern const dunlin_op_row dunlin__op_transpose;
extern const dunlin_op_row dunlin__op_reshape;
extern const dunlin_op_row dunlin__op_slice;
extern const dunlin_op_row dunlin__op_mean;
extern const dunlin_op_row dunlin__op_unary;
extern const dunlin_op_row dunlin__op_binary;
extern const dunlin_op_row dunlin__op_ramp;
extern const dunlin_op_row dunlin__op_group_norm;
extern const dunlin_op_row dunlin__op_dense_transposed;
extern const dunlin_op_row dunlin__op_pad;
extern const dunlin_op_row dunlin__op_lp_pool;
extern const dunlin_op_row dunlin__op_response_norm;
extern const dunlin_op_row dunlin__op_stack;
extern const dunlin_op_row dunlin__op_reduce;
extern const dunlin_op_row dunlin__op_expand;
extern const dunlin_op_row dunlin__op_rearrange;
extern const dunlin_op_row dunlin__op_prelu;
extern const dunlin_op_row dunlin__op_conv_transposed;
extern const dunlin_op_row dunlin__op_resize;

#define DUNLIN_OP_SHAPE_TEXT_BYTES 128

/* "(3, 32, 32)", cut to fit; returns `text`. */
const char *dunlin__op_shape_text(const dunlin_shape *shape, char text[DUNLIN_OP_SHAPE_TEXT_BYTES]);

/* Checks of infer_fn; MODEL with the node's name, what it has and what it needs. */
DUNLIN_NODISCARD dunlin_status dunlin__op_want_inputs(const dunlin_net_node *node, uint32_t n,
                                                      dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__op_want_image(const dunlin_net *net,
                                                     const dunlin_net_node *node,
                                                     dunlin_error *error);
/* Parameter `slot` of the node exists and has this shape; it gets `layout`. */
DUNLIN_NODISCARD dunlin_status dunlin__op_want_param(dunlin_net *net, const dunlin_net_node *node,
                                                     uint32_t slot, const dunlin_shape *shape,
                                                     dunlin_param_layout layout,
                                                     dunlin_error *error);
/* The slot names a parameter (false: absent, which is allowed for a bias). */
bool dunlin__op_has_param(const dunlin_net_node *node, uint32_t slot);

/* One axis of a window that slides over an image. */
typedef struct dunlin_op_axis {
    int32_t in, kernel, stride, pad_before, pad_after, dilation;
    bool is_ceil; /* PyTorch's rule: a last window that would start in the padding is dropped */
} dunlin_op_axis;
/* MODEL when no window fits; `axis_name` is "height" or "width". */
DUNLIN_NODISCARD dunlin_status dunlin__op_slide(const dunlin_net_node *node, const char *axis_name,
                                                const dunlin_op_axis *axis, int64_t *out_size,
                                                dunlin_error *error);

/* The output of a window over the node's input: an image, or a signal if that is one. `axes`: along
 * the height and the width. */
DUNLIN_NODISCARD dunlin_status dunlin__op_slide_both(dunlin_net *net, const dunlin_net_node *node,
                                                     const dunlin_op_axis axes[2], int64_t channels,
                                                     dunlin_error *error);

/* ONNX attributes of a window over two axes, or over the second alone: a signal's. */
typedef struct dunlin_op_window {
    int32_t n_axes;
    int32_t kernel[2];
    int32_t strides[2];
    int32_t dilations[2];
    int32_t pads[4]; /* top, left, bottom, right */
} dunlin_op_window;
/*
 * Reads and checks kernel_shape, strides, dilations, pads and auto_pad, which is resolved by the
 * size of input 0; rejects the node otherwise. The number of axes, and the window's size where the
 * attribute is absent, are those of `weight`; NULL: the attribute's.
 */
DUNLIN_NODISCARD dunlin_status dunlin__op_read_window(dunlin_onnx_node *onnx, const dunlin_net *net,
                                                      const dunlin_shape *weight,
                                                      dunlin_op_window *out_window);
/* The same without auto_pad, whose meaning is the operator's own. */
DUNLIN_NODISCARD dunlin_status dunlin__op_read_window_sizes(dunlin_onnx_node *onnx,
                                                            const dunlin_shape *weight,
                                                            dunlin_op_window *out_window);
/* `n` whole numbers of an attribute in [low, 65535]; absent: `fallback` for all. */
DUNLIN_NODISCARD dunlin_status dunlin__op_read_ints(dunlin_onnx_node *onnx, const char *name,
                                                    int32_t n, int32_t low, int32_t fallback,
                                                    int32_t *out);
/* The number of axes that a window over an image or a signal goes over. */
int32_t dunlin__op_n_axes(const dunlin_net *net, uint32_t value);
/*
 * The dimensions that a reduction goes over, as bits of a sample's: an attribute, from opset 18 on
 * an input. They must be known.
 */
DUNLIN_NODISCARD dunlin_status dunlin__op_read_axes(dunlin_onnx_node *onnx, int32_t n_dims,
                                                    uint32_t *out_axes);
void dunlin__op_write_window(dunlin_onnx_writer *writer, const dunlin_op_window *window,
                             bool has_dilations);

/* Input `index` of the ONNX node as the node's next input / parameter; rejects what is not one. */
DUNLIN_NODISCARD dunlin_status dunlin__op_take_value(dunlin_onnx_node *onnx, uint32_t index,
                                                     dunlin_net_node *node);
DUNLIN_NODISCARD dunlin_status dunlin__op_take_param(dunlin_onnx_node *onnx, uint32_t index,
                                                     const char *what, dunlin_net_node *node);

/* A convolution's shape; a dense layer's, over its rows. */
dunlin_conv_shape dunlin__op_conv_shape(const dunlin_net *net, const dunlin_net_node *node);
dunlin_conv_shape dunlin__op_dense_shape(const dunlin_net *net, const dunlin_net_node *node);

/* What ONNX calls a resize's coordinates and roundings, by their number, NULL-terminated; the
 * number of one of them, -1: there is none. */
extern const char *const dunlin__op_resize_coordinates[];
extern const char *const dunlin__op_resize_roundings[];
int32_t dunlin__op_resize_name(const char *const *names, const char *text);

/* Elements of a value per sample. */
int64_t dunlin__op_elements(const dunlin_emit *emit, uint32_t value);

/*
 * Convolution of the node's input with parameters 0 (weight) and 1 (bias, may be absent), forward
 * and backward; a dense layer is a 1x1 convolution over its rows.
 */
void dunlin__op_emit_conv(dunlin_emit *emit, const dunlin_net_node *node,
                          const dunlin_conv_shape *shape);
void dunlin__op_emit_conv_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_conv_shape *shape);
/*
 * A dense layer of `shape` with its matrix transposed, without bias: its passes are that layer's
 * with input and output exchanged. `y`: where the product goes.
 */
void dunlin__op_emit_transposed(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_conv_shape *shape, uint32_t y);
void dunlin__op_emit_transposed_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                      const dunlin_conv_shape *shape);
/* All of such a layer: the product, then parameter 1 added to each channel; and its gradients. */
void dunlin__op_emit_turned(dunlin_emit *emit, const dunlin_net_node *node,
                            const dunlin_conv_shape *shape);
void dunlin__op_emit_turned_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                  const dunlin_conv_shape *shape);
/* A convolution in a fused step. */
void dunlin__op_emit_fused_conv(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_conv_shape *shape);
void dunlin__op_emit_fused_conv_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                      const dunlin_conv_shape *shape);

#endif
