/*
 * net.h - the network: nodes in topological order, values between them, parameters. What builder
 * and ONNX reader make, and what shape inference, the op rows and the exporter read.
 *
 * The batch is symbolic: a batched value's shape leaves N out. A value's bytes lie as its layout
 * says: images (C, H, W) are stored H, W, C within a sample (NHWC), signals (C, L) are images of
 * one row, stored L, C; all else is row-major.
 */
#ifndef DUNLIN_NET_NET_H
#define DUNLIN_NET_NET_H

#include "kernels/api/functions.h"

#include <dunlin/model.h>

#define DUNLIN_NET_NONE UINT32_MAX
#define DUNLIN_NET_MAX_INPUTS 64
#define DUNLIN_NET_MAX_NAME 255
#define DUNLIN_NET_MAX_OUTPUTS 16

typedef enum dunlin_op_kind {
    DUNLIN_OP_CONV = 0,
    DUNLIN_OP_DENSE, /* y = x W^T + b over the last dimension */
    DUNLIN_OP_BATCH_NORM,
    DUNLIN_OP_CLIP, /* ReLU: [0, inf); ReLU6: [0, 6] */
    DUNLIN_OP_MAX_POOL,
    DUNLIN_OP_AVERAGE_POOL,
    DUNLIN_OP_GLOBAL_AVERAGE_POOL,
    DUNLIN_OP_ADD,
    DUNLIN_OP_CONCAT, /* along channels (images) or the last dimension: the innermost in memory */
    DUNLIN_OP_FLATTEN,
    DUNLIN_OP_DROPOUT,
    DUNLIN_OP_LAYER_NORM, /* over the last dimension */
    DUNLIN_OP_EMBEDDING,
    DUNLIN_OP_MATMUL,  /* of two values, leading dimensions alike */
    DUNLIN_OP_SOFTMAX, /* over the last dimension */
    DUNLIN_OP_ATTENTION,
    DUNLIN_OP_TRANSPOSE,
    DUNLIN_OP_RESHAPE,
    DUNLIN_OP_SLICE,
    DUNLIN_OP_MEAN,
    DUNLIN_OP_UNARY,            /* tanh, GELU, ...: a function of each element */
    DUNLIN_OP_RAMP,             /* the same even steps for every sample */
    DUNLIN_OP_BINARY,           /* two values, or a value and a parameter, broadcast */
    DUNLIN_OP_GROUP_NORM,       /* over groups of channels of an image, sample by sample */
    DUNLIN_OP_DENSE_TRANSPOSED, /* y = x W + b: another layer's matrix, transposed */
    DUNLIN_OP_STACK,            /* along a dimension that is not the innermost one in memory */
    DUNLIN_OP_REDUCE,           /* sum, largest, norm, ... over some dimensions of a sample */
    DUNLIN_OP_EXPAND,           /* a value repeated along dimensions where it has one element */
    DUNLIN_OP_REARRANGE, /* a sample's elements in another order, under another shape and layout */
    DUNLIN_OP_PRELU,     /* slopes below 0 are a parameter */
    DUNLIN_OP_PAD,       /* a dimension with more elements before and after it */
    DUNLIN_OP_LP_POOL,   /* the p-norm of each window */
    DUNLIN_OP_RESPONSE_NORM,   /* local response normalisation, across channels */
    DUNLIN_OP_CONV_TRANSPOSED, /* what a convolution's gradient does: one pixel becomes a window */
    DUNLIN_OP_RESIZE,          /* an image or a signal of another size, interpolated */
    DUNLIN_OP_N_KINDS
} dunlin_op_kind;

typedef enum dunlin_pad_mode {
    DUNLIN_PAD_CONSTANT = 0,
    DUNLIN_PAD_REFLECT, /* mirrored at the outermost element, which is not repeated */
    DUNLIN_PAD_EDGE     /* the outermost element again */
} dunlin_pad_mode;

typedef enum dunlin_net_layout {
    DUNLIN_LAYOUT_PLAIN = 0, /* row-major as the shape says */
    DUNLIN_LAYOUT_IMAGE      /* shape (C, H, W), stored H, W, C; or a signal (C, L), stored L, C */
} dunlin_net_layout;

typedef struct dunlin_net_value {
    const char *name;   /* ONNX tensor name, or made up; unique */
    dunlin_shape shape; /* without the batch; set by inference */
    dunlin_net_layout layout;
    uint32_t producer;    /* node, or DUNLIN_NET_NONE: the network's input */
    uint32_t n_consumers; /* node inputs that name it, + 1 for an output of the network */
} dunlin_net_value;

/* How a parameter lies in the arena, made from its ONNX layout when it is read and undone when it
 * is written. */
typedef enum dunlin_param_layout {
    DUNLIN_PARAM_PLAIN = 0,
    DUNLIN_PARAM_CONV, /* ONNX (Co, Ci/g, kh, kw), or (Co, Ci/g, kw) -> [kh][kw][Ci/g][Co] */
    DUNLIN_PARAM_DENSE /* ONNX (out, in) -> [in][out] */
} dunlin_param_layout;

/* Where first values come from. */
typedef enum dunlin_param_origin {
    DUNLIN_PARAM_FILE = 0, /* little-endian float32 at file_offset of weights_path, or of `store` */
    DUNLIN_PARAM_UNIFORM,  /* uniform in [-bound, bound], by the seed and the parameter's index */
    DUNLIN_PARAM_CONSTANT, /* `bound` everywhere */
    DUNLIN_PARAM_NORMAL,   /* normal with deviation `bound` */
    DUNLIN_PARAM_VALUES    /* `values`, in ONNX's order: computed when the file was read */
} dunlin_param_origin;

typedef struct dunlin_net_param {
    const char *name;
    dunlin_shape shape; /* ONNX's */
    int64_t n_elements;
    dunlin_parameter_role role;
    bool is_fixed_by_file;      /* the model's file says that it is not trained; asked through
                                   dunlin__param_is_fixed() */
    bool is_trained_by_default; /* the file says nothing of it */
    dunlin_param_layout layout;
    bool is_transposed_in_file; /* Gemm with transB = 0: the file holds (in, out); shape above is
                                   (out, in) */
    dunlin_param_origin origin;
    float bound;
    const char *weights_path; /* FILE; NULL: it lies in the net's store */
    uint64_t file_offset;
    const float *values; /* VALUES: n_elements, the network's */
} dunlin_net_param;

typedef struct dunlin_net_conv {
    int32_t out_channels;
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t pad_top, pad_left, pad_bottom, pad_right;
    int32_t dilation_h, dilation_w;
    int32_t groups;
    int32_t extra_h, extra_w; /* transposed: rows and columns more at the end */
} dunlin_net_conv;

typedef struct dunlin_net_pool {
    int32_t kernel_h, kernel_w;
    int32_t stride_h, stride_w;
    int32_t pad_top, pad_left, pad_bottom, pad_right;
    bool is_ceil;
    bool counts_padding;            /* average: divide by the whole window */
    int32_t dilation_h, dilation_w; /* from one tap to the next; 0: 1 */
    int32_t p;                      /* Lp pooling: of its norm */
} dunlin_net_pool;

typedef enum dunlin_resize_coordinates {
    DUNLIN_RESIZE_HALF_PIXEL = 0,
    DUNLIN_RESIZE_PYTORCH_HALF_PIXEL, /* the same; one pixel is made of the first */
    DUNLIN_RESIZE_ALIGN_CORNERS,
    DUNLIN_RESIZE_ASYMMETRIC
} dunlin_resize_coordinates;

/* Of a coordinate between two elements. */
typedef enum dunlin_resize_rounding {
    DUNLIN_RESIZE_ROUND_PREFER_FLOOR = 0,
    DUNLIN_RESIZE_ROUND_PREFER_CEIL,
    DUNLIN_RESIZE_FLOOR,
    DUNLIN_RESIZE_CEIL
} dunlin_resize_rounding;

/* To out_h x out_w, of a signal to out_w; a factor of 0 is output by input. */
typedef struct dunlin_net_resize {
    int32_t out_h, out_w;
    float factor_h, factor_w;
    bool is_linear; /* else the nearest element, by `rounding` */
    dunlin_resize_coordinates coordinates;
    dunlin_resize_rounding rounding;
} dunlin_net_resize;

typedef struct dunlin_net_batch_norm {
    float eps;
    float momentum; /* PyTorch's sense: running = (1 - momentum) * running + momentum * batch */
} dunlin_net_batch_norm;

/*
 * softmax(q k^T * scale + masks) v, for each head. Inputs: one value (T, (heads + 2 kv_heads) *
 * width), q, k and v side by side; or q of (T, heads * width), k and v of (keys, kv_heads * width).
 * Then, if has_mask, what is added to the scores: of (keys), (queries, keys) or with dimensions of
 * 1 before them; no parameter may lead to it. Parameter 0, if there is one, is added too, and is
 * never trained: (keys), (queries, keys), (heads, 1, keys) or (heads, queries, keys), likewise.
 * Parameters 1 and 2, if there are any, are rotary positions: tables of cosines and sines, (tokens,
 * width of a head) with dimensions of 1 before them, never trained; q and k become x cos + (-x_2,
 * x_1) sin, with the halves x_1, x_2 of a head.
 */
typedef struct dunlin_net_attention {
    int32_t heads;
    int32_t kv_heads; /* of k and v, each shared by heads / kv_heads of q; 0: as many as heads */
    float scale;
    bool has_mask;
    bool is_causal; /* a query sees no key behind its own place; as many keys as queries */
} dunlin_net_attention;

/* A sample's elements, row-major, as `split`; its dimensions in the order `perm`; then as `shape`.
 * Without the batch. */
typedef struct dunlin_rearrangement {
    dunlin_shape split;
    int32_t perm[DUNLIN_MAX_DIMS];
    dunlin_shape shape;
} dunlin_rearrangement;

typedef struct dunlin_net_node {
    dunlin_op_kind kind;
    const char *name;
    uint32_t inputs[DUNLIN_NET_MAX_INPUTS]; /* values */
    uint32_t n_inputs;
    uint32_t output;
    /*
     * conv, dense, dense turned: weight, bias or NONE; batch norm: scale, shift, running mean,
     * running variance; layer norm, group norm: scale, shift; embedding: the table; PReLU: slopes;
     * expand: what is repeated for each sample (input: the network's); attention: a mask that
     * samples share; binary with one input: the other operand. Indices into params.
     */
    uint32_t params[4];
    uint32_t n_params;
    union {
        dunlin_net_conv conv;
        dunlin_net_pool pool;
        dunlin_net_resize resize;
        dunlin_net_batch_norm batch_norm;
        struct {
            int32_t groups;
            float eps;
        } group_norm;
        struct {
            int32_t size; /* channels of a window */
            float alpha, beta, bias;
        } response_norm;
        struct {
            float low;
            float high;
        } clip;
        struct {
            float ratio;
            bool is_whole; /* one draw for all of a sample: stochastic depth */
        } dropout;
        struct {
            float eps;
            bool is_about_zero; /* RMSNorm: no mean is taken off, and there is no shift */
        } layer_norm;
        struct {
            bool is_left_transposed, is_right_transposed; /* the last two dimensions transposed */
        } matmul;
        dunlin_net_attention attention;
        struct {
            bool is_log;
        } softmax;
        struct {
            int32_t perm[DUNLIN_MAX_DIMS]; /* dimension i of the output is perm[i] of the input;
                                              without the batch */
        } transpose;
        struct {
            dunlin_shape shape; /* without the batch */
        } reshape;
        struct {
            int32_t axis; /* without the batch */
        } stack;
        struct {
            dunlin_rearrangement to;
            bool is_image; /* the output, (C, H, W), is stored as one */
        } rearrange;
        struct {
            int32_t axis; /* without the batch */
            int64_t start, end;
        } slice;
        struct {
            int32_t axis; /* without the batch */
            int64_t before, after;
            dunlin_pad_mode mode;
            float value;
        } pad;
        struct {
            int64_t n;
            float first, step;
        } ramp;
        struct {
            uint32_t axes; /* bit i: dimension i, without the batch */
            bool keeps_dims;
        } mean;
        struct {
            uint32_t axes; /* as of the mean */
            bool keeps_dims;
            dunlin_reduce_fn fn;
        } reduce;
        struct {
            dunlin_shape shape; /* without the batch */
        } expand;
        struct {
            dunlin_unary_fn fn;
            float a, b;
        } unary;
        struct {
            int32_t axis; /* without the batch: the dimension that has a slope for each index */
        } prelu;
        struct {
            dunlin_binary_fn fn;
            bool is_param_left; /* with one input: parameter - value, not value - parameter */
            int32_t n_ones;     /* dimensions of 1 behind the parameter's own */
        } binary;
    } u;
} dunlin_net_node;

/* An input or the output of the file that a network was read from, as the file describes it. */
typedef struct dunlin_net_port {
    const char *name;
    int32_t type; /* ONNX's number for the element type */
    bool has_shape;
    dunlin_shape shape;                     /* with the batch; -1: no number in the file */
    const char *dim_names[DUNLIN_MAX_DIMS]; /* of dimensions without a number; NULL: none either */
    uint32_t value; /* what it is in the network; DUNLIN_NET_NONE: an input that nothing reads */
} dunlin_net_port;

/*
 * Where a network's weights lie that was read from memory or from an open file. Bytes are borrowed;
 * a descriptor is the net's own.
 */
typedef struct dunlin_net_store {
    const uint8_t *bytes; /* NULL: none */
    uint64_t n_bytes;
    bool has_fd;
    int fd;
} dunlin_net_store;

typedef struct dunlin_net {
    dunlin_alloc alloc;
    dunlin_net_node *nodes;
    size_t n_nodes, nodes_capacity;
    dunlin_net_value *values;
    size_t n_values, values_capacity;
    dunlin_net_param *params;
    size_t n_params, params_capacity;
    dunlin_net_port *ports; /* the file's inputs in their order, then those of its outputs that the
                               network has; none: no file */
    size_t n_ports, ports_capacity;
    char **strings; /* every name, owned */
    size_t n_strings, strings_capacity;
    uint32_t input;                             /* value */
    uint32_t output;                            /* value: logits; the first of several outputs */
    uint32_t heads[DUNLIN_NET_MAX_OUTPUTS - 1]; /* values: the other outputs */
    uint32_t n_heads;
    dunlin_net_store store;
    const char *warning; /* of the import, on what may not be as meant; NULL: nothing */
} dunlin_net;

struct dunlin_model {
    dunlin_alloc alloc;
    dunlin_net net;
};

void dunlin__net_init(dunlin_net *net, const dunlin_alloc *alloc);
void dunlin__net_free(dunlin_net *net);

/* Adds an empty element and returns its index, DUNLIN_NET_NONE when out of memory. */
uint32_t dunlin__net_add_value(dunlin_net *net, const char *name);
uint32_t dunlin__net_add_param(dunlin_net *net, const char *name);
/* Gives a parameter of n_elements these values, which are copied; false when out of memory. */
bool dunlin__net_set_values(dunlin_net *net, uint32_t param, const float *values);
/* Takes out parameters that are never trained and that no node reads; the others keep their order.
 * False when out of memory. */
bool dunlin__net_drop_unread(dunlin_net *net);
/* With a copy of what `port` points to; false when out of memory. */
bool dunlin__net_add_port(dunlin_net *net, const dunlin_net_port *port);
uint32_t dunlin__net_add_node(dunlin_net *net, dunlin_op_kind kind, const char *name);

/* A copy of a string that is valid as long as the net; NULL when out of memory. */
const char *dunlin__net_string(dunlin_net *net, const char *text);

/*
 * Infers the shape and layout of every value through the op rows, counts consumers, checks that
 * nodes are in topological order, that each value has one producer, that names are unique and
 * parameter shapes fit. MODEL with the node's name, what it has and what it needs.
 */
DUNLIN_NODISCARD dunlin_status dunlin__net_infer(dunlin_net *net, dunlin_error *error);

/* The same of a network that not all of its parameters belong to any more. */
DUNLIN_NODISCARD dunlin_status dunlin__net_infer_values(dunlin_net *net, dunlin_error *error);

/* Weights that are not in a file by name cannot be read any more: closes the descriptor. */
void dunlin__net_drop_store(dunlin_net *net);

/* A deep copy; with a descriptor of its own, while bytes in memory are borrowed by both. MEMORY;
 * IO. */
DUNLIN_NODISCARD dunlin_status dunlin__net_copy(const dunlin_net *net, const dunlin_alloc *alloc,
                                                dunlin_net *out_net);

/*
 * The model's file says that this parameter is not trained: a constant of the graph, or a buffer by
 * the file's metadata. It gets no gradient and no optimiser state, and is saved and exported as it
 * is. Running statistics are never fixed this way: they are no weights, and steps move them.
 */
bool dunlin__param_is_fixed(const dunlin_net *net, uint32_t param);

int64_t dunlin__value_elements(const dunlin_net_value *value); /* per sample */

/* The rows of a value that a loss or a softmax goes over, per sample, and the numbers of each: of
 * an image the channels of a pixel, else the last dimension; one row if that is all. */
void dunlin__value_rows(const dunlin_net_value *value, int64_t *out_n_rows, int64_t *out_width);

/* Per-sample image dims (H, W, C) of a value of either layout: a signal (C, L) is 1, L, C; a plain
 * (D) is 1, 1, D; a plain (T, D) is T, 1, D. */
void dunlin__value_hwc(const dunlin_net_value *value, int32_t *out_h, int32_t *out_w,
                       int32_t *out_c);

#endif
