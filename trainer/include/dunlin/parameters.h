/*
 * parameters.h - what each parameter of a network is for, whether it is trained, and in which
 * group.
 *
 * A trainer trains the parameters that its options leave: dunlin_model_list_parameters() says of a
 * model and of options which ones those are before anything is planned,
 * dunlin_trainer_list_parameters() of a trainer that there is.
 *
 * Example: what fine-tuning of the head would train; print_entry() is the app's.
 *
 * @code
 * #include <dunlin/trainer.h>
 *
 * extern void print_entry(void *ctx, const dunlin_parameter_entry *entry);
 * extern const dunlin_model *model;
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * dunlin_error error = {0};
 * options.trained = DUNLIN_TRAINED_HEAD;
 * if (dunlin_model_list_parameters(model, &options, print_entry, NULL, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * }
 * @endcode
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
    DUNLIN_USE_UNUSED = 0,     /* no layer reads it */
    DUNLIN_USE_WEIGHT = 1,     /* of a convolution or a dense layer */
    DUNLIN_USE_BIAS = 2,       /* of those; or a vector that is added, with one dimension above 1 */
    DUNLIN_USE_NORM_SCALE = 3, /* of batch, layer or group norm */
    DUNLIN_USE_NORM_SHIFT = 4,
    DUNLIN_USE_TABLE = 5,     /* rows that tokens pick: an embedding */
    DUNLIN_USE_POSITION = 6,  /* added or subtracted, with several dimensions above 1 */
    DUNLIN_USE_FACTOR = 7,    /* values are multiplied or divided by it */
    DUNLIN_USE_STATISTIC = 8, /* running mean or variance of batch norm: never trained */
    DUNLIN_N_USES = 9
} dunlin_parameter_use;

/** @return "weight", "bias", "norm_scale", "norm_shift", "table", "position", "factor", "statistic"
 * or "unused"; NULL for a number that is none. */
DUNLIN_API const char *dunlin_parameter_use_name(dunlin_parameter_use use);

/** A use as a member of a set of uses. */
#define DUNLIN_USE_BIT(use) (UINT32_C(1) << (use))

/** Presets of what is trained. Of the head and the prefixes, all that are given must agree. */
typedef enum dunlin_trained {
    DUNLIN_TRAINED_ALL = 0,
    /* The parameters of the last layer: the dense layer or 1 x 1 convolution that the network ends
     * with. Batch norms before it use their running statistics and keep them. */
    DUNLIN_TRAINED_HEAD = 1,
    /* Biases, and scales and shifts of norms; running statistics move. */
    DUNLIN_TRAINED_BIASES_AND_NORMS = 2
} dunlin_trained;

/** Of the options' groups. */
#define DUNLIN_MAX_GROUPS 64

/**
 * Parameters with a rate and a weight decay of their own, as PyTorch's param_groups. A parameter
 * belongs to the first group that has it; one that is in none has the factors 1.
 */
typedef struct dunlin_parameter_group {
    size_t struct_size;
    const char *name; /* for lists; NULL: "group 1", ... */
    /* Comma-separated patterns of whole names, of which one must match: * is any run of characters,
     * ? any one. NULL: every name. */
    const char *patterns;
    uint32_t uses;      /* set of DUNLIN_USE_BIT(); 0: every use */
    float lr_factor;    /* times the rate of the step, by base rate and schedule; 0: it stays */
    float decay_factor; /* times options.weight_decay; 0: without */
} dunlin_parameter_group;

#define DUNLIN_PARAMETER_GROUP_INIT                                                                \
    DUNLIN_SIZED_INIT_2(dunlin_parameter_group, lr_factor, 1.0F, decay_factor, 1.0F)

/** One parameter of a list. The list's maker fills it, so programs that know fewer members go on.
 */
typedef struct dunlin_parameter_entry {
    size_t struct_size;
    const char *name;   /* the ONNX name; it belongs to the model or trainer */
    dunlin_shape shape; /* ONNX's */
    int64_t n_elements;
    dunlin_parameter_use use;
    bool is_trained;
    int32_t group;                 /* the index of its group in the options; -1: it is in none */
    const char *group_name;        /* valid as long as `name`; "" without a group */
    float lr_factor, decay_factor; /* of a trained parameter; else 0 */
} dunlin_parameter_entry;

#define DUNLIN_PARAMETER_ENTRY_INIT DUNLIN_SIZED_INIT(dunlin_parameter_entry)

/** Called once for each parameter, in the model's order; `entry` is valid during the call. */
typedef void (*dunlin_parameter_fn)(void *ctx, const dunlin_parameter_entry *entry);

/**
 * Every parameter of a model as a trainer with these options (NULL: the defaults) would treat it.
 * Nothing is planned, and no weight is read.
 *
 * @return OK; ARGUMENT for options that dunlin_trainer_create() refuses for what they say about
 * parameters; VERSION, MEMORY. Then there is no call.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_list_parameters(
    const dunlin_model *model, const struct dunlin_trainer_options *options,
    dunlin_parameter_fn entry_fn, void *ctx, dunlin_error *out_error);

/** The same of a trainer.
 *
 * @return OK; STATE while another call works on it. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_list_parameters(
    const struct dunlin_trainer *trainer, dunlin_parameter_fn entry_fn, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
