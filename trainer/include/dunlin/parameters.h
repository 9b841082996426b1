/*
 * parameters.h - what each parameter of a network is for, whether it is trained, and in which
 * group.
 *
 * A trainer trains the parameters that its options leave: dunlin_model_list_parameters() says of a
 * model and of options which ones those are before anything is planned,
 * dunlin_trainer_list_parameters() of a trainer that there is.
 */
#ifndef DUNLIN_PARAMETERS_H
#define DUNLIN_PARAMETERS_H

#include <dunlin/model.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dunlin_trainer;
struct dunlin_trainer_options;

/**
 * What the network uses a parameter for. Of a parameter that several layers share the first one in
 * the network's order decides.
 */
typedef enum dunlin_parameter_use {
    DUNLIN_USE_UNUSED = 0, /* no layer reads it */
    DUNLIN_USE_WEIGHT,     /* of a convolution or a dense layer */
    DUNLIN_USE_BIAS,       /* of those; or a vector that is added, with one dimension above 1 */
    DUNLIN_USE_NORM_SCALE, /* of batch, layer or group norm */
    DUNLIN_USE_NORM_SHIFT,
    DUNLIN_USE_TABLE,     /* rows that tokens pick: an embedding */
    DUNLIN_USE_POSITION,  /* added or subtracted, with several dimensions above 1 */
    DUNLIN_USE_FACTOR,    /* values are multiplied or divided by it */
    DUNLIN_USE_STATISTIC, /* running mean or variance of batch norm: never trained */
    DUNLIN_N_USES
} dunlin_parameter_use;

/** "weight", "bias", "norm_scale", "norm_shift", "table", "position", "factor", "statistic"
 * or "unused"; NULL for a number that is none. */
DUNLIN_API const char *dunlin_parameter_use_name(dunlin_parameter_use use);

/** One parameter of a list. The list's maker fills it, so programs that know fewer members go on.
 */
typedef struct dunlin_parameter_entry {
    size_t struct_size;
    const char *name;   /* the ONNX name; it belongs to the model or trainer */
    dunlin_shape shape; /* ONNX's */
    int64_t n_elements;
    dunlin_parameter_use use;
    bool is_trained;
} dunlin_parameter_entry;

/** Called once for each parameter, in the model's order; `entry` is valid during the call. */
typedef void (*dunlin_parameter_fn)(void *ctx, const dunlin_parameter_entry *entry);

/**
 * Every parameter of a model as a trainer with these options (NULL: the defaults) would treat it.
 * Nothing is planned, and no weight is read. ARGUMENT for options that dunlin_trainer_create()
 * refuses for what they say about parameters; then there is no call.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_list_parameters(
    const dunlin_model *model, const struct dunlin_trainer_options *options,
    dunlin_parameter_fn entry_fn, void *ctx, dunlin_error *out_error);

/** The same of a trainer. STATE while another call works on it. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_list_parameters(
    const struct dunlin_trainer *trainer, dunlin_parameter_fn entry_fn, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
