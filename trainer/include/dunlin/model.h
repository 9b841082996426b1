/*
 * model.h - a network: built by calls or read from an ONNX file, checked, written back.
 *
 * A model is the graph and where its weights come from; it holds no weights itself. A trainer takes
 * them in when it is created, in blocks, straight from the file. Image tensors are described as (N,
 * C, H, W), as ONNX does; N, the batch, stays open. A model is read-only after it is finished and
 * may be shared by trainers and threads.
 *
 * Example: a small network of one's own.
 *
 * @code
 * const dunlin_shape image = {.n_dims = 3, .dims = {1, 28, 28}};
 * dunlin_error error = {0};
 * dunlin_builder *builder = NULL;
 * dunlin_model *model = NULL;
 * if (dunlin_builder_create(NULL, &builder) != DUNLIN_OK) {
 *     return 1;
 * }
 * dunlin_value x = dunlin_builder_input(builder, "image", &image);
 * x = dunlin_builder_relu(builder, dunlin_builder_conv(builder, "conv", x, 16, 3, NULL));
 * x = dunlin_builder_flatten(builder, dunlin_builder_global_average_pool(builder, x));
 * x = dunlin_builder_dense(builder, "dense", x, 10);
 * if (dunlin_builder_finish(builder, x, &model, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * }
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_MODEL_H
#define DUNLIN_MODEL_H

#include <dunlin/alloc.h>
#include <dunlin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_model dunlin_model;
typedef struct dunlin_builder dunlin_builder;

/** A value of the network under construction: the result of a layer call. Negative: the builder has
 * failed. */
typedef int32_t dunlin_value;

/**
 * Starts a network. `hooks` may be NULL. Layer calls after an error do nothing and return a
 * negative value; the error comes out at dunlin_builder_finish(), so a network can be written down
 * without a check on every line.
 *
 * @return OK; ARGUMENT, MEMORY: *out_builder is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_builder_create(const dunlin_alloc *hooks,
                                                                dunlin_builder **out_builder);

/** Gives up a builder that was not finished. NULL is fine. */
DUNLIN_API void dunlin_builder_destroy(dunlin_builder *builder);

/** An input of the network: `shape` without the batch, (C, H, W) or (features). Before any layer;
 * once, or several times for several inputs (dunlin/several.h).
 *
 * @return the input's value; as every layer call a negative number where it, or a call before it,
 * failed. */
DUNLIN_API dunlin_value dunlin_builder_input(dunlin_builder *builder, const char *name,
                                             const dunlin_shape *shape);

/** The network's input in place of dunlin_builder_input(): signals of some channels, (C, L), as of
 * sensors and microphones. Convolution, pooling, norms over channels and all that is done element
 * by element take them as they take images: along the length.
 *
 * @return the input's value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_input_signal(dunlin_builder *builder, const char *name,
                                                    int64_t channels, int64_t length);

/** A convolution's options; zero means: stride 1, no padding, dilation 1, one group, with bias. */
typedef struct dunlin_conv_options {
    size_t struct_size;
    int32_t stride;
    int32_t padding; /* on all four sides; of a signal on both */
    int32_t dilation;
    int32_t groups; /* = channels: depthwise */
    bool no_bias;
} dunlin_conv_options;
#define DUNLIN_CONV_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_conv_options)

/**
 * Layers. `name` prefixes the parameters: "conv1" makes "conv1.weight" and "conv1.bias", with
 * PyTorch's shapes and initial distributions. Shapes are those of PyTorch's layers of the same
 * name. `options` may be NULL.
 *
 * @return the layer's value, also of all layer calls that follow; negative after an error.
 */
DUNLIN_API dunlin_value dunlin_builder_conv(dunlin_builder *builder, const char *name,
                                            dunlin_value input, int32_t out_channels,
                                            int32_t kernel, const dunlin_conv_options *options);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_dense(dunlin_builder *builder, const char *name,
                                             dunlin_value input, int32_t out_features);
/** Batch norm over (N, H, W) per channel; eps 1e-5, momentum 0.1 as PyTorch counts it. @return its
 * value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_batch_norm(dunlin_builder *builder, const char *name,
                                                  dunlin_value input);
/** Group norm (Wu and He 2018): each sample's `groups` groups of an image's channels by themselves;
 * `groups` must divide the channels; eps 1e-5. Makes "name.weight" and "name.bias". Unlike batch
 * norm it needs neither the whole batch nor running statistics.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_group_norm(dunlin_builder *builder, const char *name,
                                                  dunlin_value input, int32_t groups);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_relu(dunlin_builder *builder, dunlin_value input);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_relu6(dunlin_builder *builder, dunlin_value input);
/** Each element x above 0 as it is, else alpha * x; `alpha` is finite (PyTorch's default: 0.01).
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_leaky_relu(dunlin_builder *builder, dunlin_value input,
                                                  float alpha);
/** 1 / (1 + e^-x). @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_sigmoid(dunlin_builder *builder, dunlin_value input);
/** x / (1 + e^-x), also called swish. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_silu(dunlin_builder *builder, dunlin_value input);
/** x * hard_sigmoid(x). @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_hard_swish(dunlin_builder *builder, dunlin_value input);
/** (x + 3) / 6, clipped to [0, 1]. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_hard_sigmoid(dunlin_builder *builder, dunlin_value input);
/** Each element x above 0 as it is, else alpha * (e^x - 1); `alpha` is finite (PyTorch's default:
 * 1). @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_elu(dunlin_builder *builder, dunlin_value input,
                                           float alpha);
/** Each element x above 0 as it is, else times a slope that is trained (He et al. 2015), 0.25 at
 * first: "name.weight" holds `slopes` of them, 1 for all elements, or one for each channel of an
 * image or number of the last dimension.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_prelu(dunlin_builder *builder, const char *name,
                                             dunlin_value input, int64_t slopes);
/** log(1 + e^x). @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_softplus(dunlin_builder *builder, dunlin_value input);
/** x * tanh(log(1 + e^x)). @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_mish(dunlin_builder *builder, dunlin_value input);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_max_pool(dunlin_builder *builder, dunlin_value input,
                                                int32_t kernel, int32_t stride, int32_t padding);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_average_pool(dunlin_builder *builder, dunlin_value input,
                                                    int32_t kernel, int32_t stride,
                                                    int32_t padding);
/** The p-norm of each window, (sum of |x|^p)^(1/p) for a whole p from 1 to 64; where a window is
 * all zeros, so is its gradient. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_lp_pool(dunlin_builder *builder, dunlin_value input,
                                               int32_t p, int32_t kernel, int32_t stride,
                                               int32_t padding);
/** The largest of each channel; the gradient goes to the first of those that tie. @return its
 * value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_global_max_pool(dunlin_builder *builder, dunlin_value input);
/** Each element of an image or signal by (bias + alpha / size * sum of squares over `size` channels
 * around its own)^beta (Krizhevsky et al. 2012; AlexNet's: 5, 1e-4, 0.75, 2). `size` is 1 to 255;
 * of an even one the larger half lies after the channel, as in ONNX.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_local_response_norm(dunlin_builder *builder,
                                                           dunlin_value input, int32_t size,
                                                           float alpha, float beta, float bias);
/** What stands in elements that a dimension is given more of. */
typedef enum dunlin_padding {
    DUNLIN_PADDING_CONSTANT = 0, /**< one number */
    DUNLIN_PADDING_REFLECT = 1,  /**< the elements mirrored at the outermost one, which is not
                                      repeated: fewer than the dimension has */
    DUNLIN_PADDING_EDGE = 2      /**< the outermost one again */
} dunlin_padding;
/** A dimension (the batch is not counted) with `before` and `after` more elements; `value` is the
 * number of DUNLIN_PADDING_CONSTANT. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_pad(dunlin_builder *builder, dunlin_value input,
                                           int32_t axis, int64_t before, int64_t after,
                                           dunlin_padding mode, float value);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_global_average_pool(dunlin_builder *builder,
                                                           dunlin_value input);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_add(dunlin_builder *builder, dunlin_value left,
                                           dunlin_value right);
/** Along the channels. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_concat(dunlin_builder *builder, const dunlin_value *inputs,
                                              int32_t n_inputs);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_flatten(dunlin_builder *builder, dunlin_value input);
/** Drops with probability `ratio` in training; by a counter, so that a step can be recomputed.
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_dropout(dunlin_builder *builder, dunlin_value input,
                                               float ratio);
/** Stochastic depth (Huang et al. 2016), also called drop path: in training a sample's whole value
 * becomes 0 with probability `ratio`, else it is divided by 1 - ratio. For a branch that is added
 * to its input. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_stochastic_depth(dunlin_builder *builder, dunlin_value input,
                                                        float ratio);

/**
 * Layers of transformers. Values are (tokens, features), the batch left out. Dense layers take them
 * too, row by row.
 */
/** Rows of a table ("name.weight", rows x width, standard normal) by number: (tokens) of whole
 * numbers below `rows` to (tokens, width). Must stand at the network's input.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_embedding(dunlin_builder *builder, const char *name,
                                                 dunlin_value input, int64_t rows, int64_t width);
/** Over the last dimension; eps 1e-5. Makes "name.weight" and "name.bias". @return its value;
 * negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_layer_norm(dunlin_builder *builder, const char *name,
                                                  dunlin_value input);
/** The sum with a parameter called `name` alone, zeros at first, as for learned positions. `shape`
 * is broadcast against the input's.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_add_parameter(dunlin_builder *builder, const char *name,
                                                     dunlin_value input, const dunlin_shape *shape);
/**
 * softmax(q k^T / sqrt(width)) v for each of `heads` heads. `qkv`: one value (tokens, 3 x
 * features), q, k, v side by side; or q, k and v of (tokens, features). `mask` (negative: none) is
 * added to the scores: (keys) or (tokens, keys), made of the network's input.
 *
 * @return its value; negative after an error.
 */
DUNLIN_API dunlin_value dunlin_builder_attention(dunlin_builder *builder, const dunlin_value *qkv,
                                                 int32_t n_qkv, int32_t heads, dunlin_value mask);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_gelu(dunlin_builder *builder, dunlin_value input);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_tanh(dunlin_builder *builder, dunlin_value input);
/** The error function. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_erf(dunlin_builder *builder, dunlin_value input);
/** Over the last dimension; of an image, over the channels of each pixel. @return its value;
 * negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_softmax(dunlin_builder *builder, dunlin_value input);
/** left * right, the matrices of the last two dimensions. @return its value; negative after an
 * error. */
DUNLIN_API dunlin_value dunlin_builder_matmul(dunlin_builder *builder, dunlin_value left,
                                              dunlin_value right);
/** Elementwise; sizes are the same or 1. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_multiply(dunlin_builder *builder, dunlin_value left,
                                                dunlin_value right);
/** Elementwise the larger one; sizes are the same or 1. The gradient goes to it; each has half
 * where they tie. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_maximum(dunlin_builder *builder, dunlin_value left,
                                               dunlin_value right);
/** The smaller one, likewise. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_minimum(dunlin_builder *builder, dunlin_value left,
                                               dunlin_value right);
/** Elements [start, end) of a dimension (the batch is not counted). @return its value; negative
 * after an error. */
DUNLIN_API dunlin_value dunlin_builder_slice(dunlin_builder *builder, dunlin_value input,
                                             int32_t axis, int64_t start, int64_t end);
/** @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_reshape(dunlin_builder *builder, dunlin_value input,
                                               const dunlin_shape *shape);
/** Dimension i of the result is dimension order[i] of the input; one number for each. @return its
 * value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_transpose(dunlin_builder *builder, dunlin_value input,
                                                 const int32_t *order);
/** The mean over one dimension, which is gone then. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_mean(dunlin_builder *builder, dunlin_value input,
                                            int32_t axis);
/** What becomes of the elements of a dimension. */
typedef enum dunlin_reduction {
    DUNLIN_REDUCTION_SUM = 0,
    DUNLIN_REDUCTION_LARGEST = 1, /**< the gradient is shared evenly among those that are it */
    DUNLIN_REDUCTION_SMALLEST = 2,
    DUNLIN_REDUCTION_L1 = 3, /**< sum of |x| */
    DUNLIN_REDUCTION_L2 = 4, /**< root of the sum of squares; where that is 0, so is its gradient */
    DUNLIN_REDUCTION_SUM_SQUARE = 5,
    DUNLIN_REDUCTION_LOG_SUM_EXP = 6
} dunlin_reduction;
/** Over one dimension (the batch is not counted), which is 1 then. @return its value; negative
 * after an error. */
DUNLIN_API dunlin_value dunlin_builder_reduce(dunlin_builder *builder, dunlin_value input,
                                              dunlin_reduction reduction, int32_t axis);
/** The channels of an image, group by group, become one of each group in turn (ShuffleNet); groups
 * divide the channels. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_channel_shuffle(dunlin_builder *builder, dunlin_value input,
                                                       int32_t groups);
/** Blocks of `block` x `block` pixels become channels, as PyTorch's pixel_unshuffle; `block`
 * divides height and width. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_space_to_depth(dunlin_builder *builder, dunlin_value input,
                                                      int32_t block);
/** The way back, as PyTorch's pixel_shuffle; its square divides the channels. @return its value;
 * negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_depth_to_space(dunlin_builder *builder, dunlin_value input,
                                                      int32_t block);

/**
 * Ends the network with `output` (logits) and hands out the model; the builder is gone in any case.
 *
 * @return OK; the first error of any layer call, with its detail in `out_error` (may be NULL):
 * ARGUMENT, MODEL, UNSUPPORTED, VERSION, OVERFLOW, MEMORY. *out_model is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_builder_finish(dunlin_builder *builder,
                                                                dunlin_value output,
                                                                dunlin_model **out_model,
                                                                dunlin_error *out_error);

/** Sizes for the ready-made networks; zero means the network's own default. */
typedef struct dunlin_zoo_options {
    size_t struct_size;
    int32_t image;    /* height and width; 0: the network's own, also where they differ; signals
                       * have none */
    int32_t channels; /* of the input */
    int32_t classes;
    int32_t sequence; /* tokens of an example, for networks that read tokens; samples of a signal */
    int32_t vocabulary; /* tokens are below it; 0, of those that predict tokens: `classes` */
} dunlin_zoo_options;
#define DUNLIN_ZOO_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_zoo_options)

/**
 * A ready-made network by name: "lenet5" (28x28, 1 channel, 10 classes), "mlp"; "har_mlp" (43
 * features as channels of 1x1, 6 classes: 5,094 parameters); "ds_cnn" for keywords (49x10, 1, 12);
 * "har_fcn" for sensors (signals of 128 samples, 6 channels, 6 classes); with torchvision's
 * parameters, names and first distributions (224x224, 3, 1000) "mobilenet_v1", "mobilenet_v2",
 * "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0" (without stochastic depth),
 * "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "resnet18", "resnet34", "resnet50", "resnet101",
 * "densenet121", "alexnet", "vgg11", "vgg13", "vgg16", "vgg19", each of these also with batch norm
 * ("vgg16_bn"), "squeezenet1_1", "googlenet", and "inception_v3" (299x299), the last two also with
 * their auxiliary heads ("googlenet_aux", "inception_v3_aux", dunlin/several.h); with timm's
 * "vit_tiny" (patches of 16 x 16) and "vit_tiny_patch4" (32x32, 3, 10); "bert_tiny" and
 * "bert_small_masked" with a mask of padding, which is token 0 (transformers' parameters, 2
 * classes); "bert_small", "gpt_tiny" and "gpt_small" (their classes are their vocabulary);
 * dunlin_zoo_name() lists all. `options` may be NULL.
 *
 * @return OK; UNSUPPORTED with known names in the detail, those like it first, or when the network
 * cannot take the image size; MODEL when the image is too small; ARGUMENT, VERSION, MEMORY.
 * *out_model is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_from_zoo(const char *name,
                                                                const dunlin_zoo_options *options,
                                                                const dunlin_alloc *hooks,
                                                                dunlin_model **out_model,
                                                                dunlin_error *out_error);

/** @return the i-th ready-made network's name, or NULL past the last. */
DUNLIN_API const char *dunlin_zoo_name(int32_t index);

/**
 * Reads an ONNX file (opset 9 to 21, exported for training, weights inside or in an external file
 * beside it).
 *
 * The file must stay where it is until the trainers made from the model have been created: weights
 * are read from it in blocks.
 *
 * @return OK; IO, MODEL (the file is damaged: what and where), UNSUPPORTED (the first of the nodes
 * that dunlin_model_check() would list, and how many), LIMIT, MEMORY. *out_model is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_open(const char *path,
                                                            const dunlin_alloc *hooks,
                                                            dunlin_model **out_model,
                                                            dunlin_error *out_error);

/** Sizes that a file leaves open, besides the batch; 0: not given. What has a number in the file
 * keeps it. */
typedef struct dunlin_model_sizes {
    size_t struct_size;
    int32_t height, width; /* of images: inputs of four dimensions, (N, C, H, W) */
    int32_t length;        /* of other inputs, if they leave one size open: (N, tokens) */
    /* Of a file with several outputs those that the model has, comma-separated names, the main one
     * first (dunlin/several.h). NULL: the only one. Borrowed for the call. */
    const char *outputs;
} dunlin_model_sizes;
#define DUNLIN_MODEL_SIZES_INIT DUNLIN_SIZED_INIT(dunlin_model_sizes)

/**
 * dunlin_model_open() of a file whose inputs leave more than the batch open. The model is that of
 * these sizes; a file that is exported from it leaves them open again, by the same names. `sizes`
 * may be NULL.
 *
 * @return as dunlin_model_open(); ARGUMENT (a size is negative), VERSION.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_open_sized(const char *path,
                                                                  const dunlin_model_sizes *sizes,
                                                                  const dunlin_alloc *hooks,
                                                                  dunlin_model **out_model,
                                                                  dunlin_error *out_error);

/**
 * Reads a model from memory, as dunlin_model_open() does from a file: an asset that the app has
 * loaded or mapped; `sizes` may be NULL. The bytes are borrowed: they must stay as they are until
 * the trainers made from the model, and from copies of it, have been created.
 *
 * @return as dunlin_model_open(); UNSUPPORTED where weights lie in another file.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_open_memory(
    const void *bytes, size_t n_bytes, const dunlin_model_sizes *sizes, const dunlin_alloc *hooks,
    dunlin_model **out_model, dunlin_error *out_error);

/**
 * Reads a model from a part of a file that is open: `n_bytes` bytes from byte `offset` on (0: to
 * the file's end), as Android hands out an asset within an app's package. The descriptor stays the
 * app's and may be closed after the call, for the model has one of its own until it is destroyed;
 * the position in the file does not move. The file's bytes must stay until the trainers made from
 * the model have been created.
 *
 * @return as dunlin_model_open(); UNSUPPORTED where weights lie in another file; ARGUMENT where the
 * bytes pass the file's end.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_model_open_fd(int fd, uint64_t offset, uint64_t n_bytes, const dunlin_model_sizes *sizes,
                     const dunlin_alloc *hooks, dunlin_model **out_model, dunlin_error *out_error);

/** One kind of thing in a file that cannot be trained: the texts are valid during the callback. The
 * library makes it and sets struct_size. */
typedef struct dunlin_model_issue {
    size_t struct_size;
    const char *node; /* the first one; "" if it is the model as a whole */
    const char *op;
    const char *attribute; /* "" if the op as a whole is the matter */
    const char *reason;    /* the first node's */
    int32_t n_nodes;     /* that are of this kind: reasons that differ in names and numbers only */
    const char *way_out; /* what to do about it, "" if there is nothing general to say */
} dunlin_model_issue;
#define DUNLIN_MODEL_ISSUE_INIT DUNLIN_SIZED_INIT(dunlin_model_issue)

/** Lists *all* that stands in the way of training an ONNX file, causes only, one call for each kind
 * (an operator and what is the matter with it), in the order of the graph; `*out_n_issues` is how
 * many.
 *
 * @return OK, which with no call means that it can be trained; IO, MODEL, LIMIT, MEMORY. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_model_check(const char *path, const dunlin_alloc *hooks,
                   void (*issue_fn)(void *ctx, const dunlin_model_issue *issue), void *ctx,
                   int32_t *out_n_issues, dunlin_error *out_error);

/** dunlin_model_check() of a file whose inputs leave more than the batch open. `sizes` may be NULL.
 *
 * @return as dunlin_model_check(); ARGUMENT (a size is negative), VERSION. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_check_sized(
    const char *path, const dunlin_model_sizes *sizes, const dunlin_alloc *hooks,
    void (*issue_fn)(void *ctx, const dunlin_model_issue *issue), void *ctx, int32_t *out_n_issues,
    dunlin_error *out_error);

/**
 * @return one sentence on what may not be as the author meant it, NULL if there is nothing: stored
 * tensors of an ONNX file that are trained though layers only add or multiply them, such as tables
 * of positions. Belongs to the model.
 */
DUNLIN_API const char *dunlin_model_warning(const dunlin_model *model);

/** NULL is fine. Trainers made from the model do not need it any more. */
DUNLIN_API void dunlin_model_destroy(dunlin_model *model);

/** @return input shape without the batch, (C, H, W), (features) or (tokens); of several inputs
 * that of one array that holds them all. */
DUNLIN_API dunlin_shape dunlin_model_input_shape(const dunlin_model *model);
/** @return if the input is tokens: they must be below this number, else 0. */
DUNLIN_API int64_t dunlin_model_vocabulary(const dunlin_model *model);
/** @return width of the output, or of each of its rows (dunlin/pixels.h): the number of classes. */
DUNLIN_API int64_t dunlin_model_n_outputs(const dunlin_model *model);

/** What a parameter is for the federation: averaged, a running statistic. */
typedef enum dunlin_parameter_role {
    DUNLIN_PARAMETER_TRAINABLE = 0,
    DUNLIN_PARAMETER_STATISTIC = 1 /* batch norm's running mean and variance */
} dunlin_parameter_role;

/** One parameter; `name` (its ONNX name) belongs to the model. Shapes are ONNX's, whatever the
 * layout inside. This struct is frozen; parameters.h has one that grows. */
typedef struct dunlin_parameter_info {
    const char *name;
    dunlin_shape shape;
    int64_t n_elements;
    dunlin_parameter_role role;
} dunlin_parameter_info;

/** @return the number of parameters, which stand in the model's stable order. */
DUNLIN_API int32_t dunlin_model_n_parameters(const dunlin_model *model);
/** @return OK with the parameter; ARGUMENT for an index that is none. */
DUNLIN_API dunlin_status dunlin_model_parameter(const dunlin_model *model, int32_t index,
                                                dunlin_parameter_info *out_info);
/** @return elements of all trainable parameters together. */
DUNLIN_API int64_t dunlin_model_n_trainable_elements(const dunlin_model *model);
/** @return true of the running variance of a batch norm: a parameter whose values are never below
 * 0, also where averages of them round to less. False for an index that is none. */
DUNLIN_API bool dunlin_model_is_variance(const dunlin_model *model, int32_t index);

/**
 * A copy whose last dense layer (or 1x1 convolution) has `classes` outputs and fresh weights: the
 * usual start of fine-tuning.
 *
 * @return OK; UNSUPPORTED if the network does not end so, or another layer reads the last one's
 * weight too (a tied embedding); ARGUMENT, MEMORY. *out_model is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_replace_head(const dunlin_model *model,
                                                                    int32_t classes,
                                                                    const dunlin_alloc *hooks,
                                                                    dunlin_model **out_model,
                                                                    dunlin_error *out_error);

#ifdef __cplusplus
}
#endif

#endif
