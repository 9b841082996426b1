/*
 * builtin_app_model.c - the newest federated model in a predictor, in a trainer, and as an ONNX
 * file.
 *
 * Invariant: weights pass through in blocks; names and shapes have been compared before the first
 * one is taken.
 */
#include <dunlin/builtin.h>
#include <dunlin/bytes.h>
#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <math.h>
#include <string.h>

#define BLOCK_FLOATS 2048

/* The set's tensor that is a parameter; MISMATCH if there is none of its name and shape. */
static dunlin_status find_tensor(const dunlin_weights_reader *set,
                                 const dunlin_parameter_info *parameter, int32_t *out_index,
                                 dunlin_error *error)
{
    for (int32_t i = 0; i < set->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &set->tensors[i];
        if (strcmp(tensor->name, parameter->name) != 0) {
            continue;
        }
        if (tensor->n_elements != parameter->n_elements ||
            tensor->shape.n_dims != parameter->shape.n_dims ||
            memcmp(tensor->shape.dims, parameter->shape.dims,
                   sizeof(int64_t) * (size_t)tensor->shape.n_dims) != 0) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "app model", 0,
                                "tensor %.100s has %lld elements in the federated model, %lld in "
                                "the network, or another shape",
                                tensor->name, (long long)tensor->n_elements,
                                (long long)parameter->n_elements);
        }
        *out_index = i;
        return DUNLIN_OK;
    }
    return dunlin__fail(error, DUNLIN_MISMATCH, "app model", 0,
                        "the federated model has no tensor %.100s, which the network has",
                        parameter->name);
}

/* Every parameter of the network must be in the set, and nothing else. */
static dunlin_status check_network(const dunlin_model *network, const dunlin_weights_reader *set,
                                   dunlin_error *error)
{
    const int32_t n_parameters = dunlin_model_n_parameters(network);
    if (n_parameters != set->n_tensors) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "app model", 0,
                            "the federated model has %d tensors, the network has %d",
                            (int)set->n_tensors, (int)n_parameters);
    }
    for (int32_t i = 0; i < n_parameters; i++) {
        dunlin_parameter_info info = {0};
        int32_t index = 0;
        DUNLIN_TRY(dunlin_model_parameter(network, i, &info));
        DUNLIN_TRY(find_tensor(set, &info, &index, error));
    }
    return DUNLIN_OK;
}

/* The reader of an open model, compared with the network. */
static dunlin_status take_reader(const dunlin_app_model *model, const dunlin_model *network,
                                 dunlin_weights_reader *out, dunlin_error *error)
{
    dunlin__error_clear(error);
    if (model == NULL || network == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "app model", 0, "%s is NULL",
                            model == NULL ? "model" : "network");
    }
    DUNLIN_TRY(dunlin_app_model_get_reader(model, out));
    return check_network(network, out, error);
}

/* An average of variances may round to less than nothing. */
static void floor_variance(const dunlin_model *network, int32_t parameter, float *values, int64_t n)
{
    for (int64_t i = 0; dunlin_model_is_variance(network, parameter) && i < n; i++) {
        values[i] = values[i] < 0.0F ? 0.0F : values[i];
    }
}

/* A tensor of the app's model, and the parameter of the network that it is. */
typedef struct tensor_of {
    const dunlin_model *network;
    const dunlin_weights_reader *set;
    int32_t parameter;
    int32_t index; /* in the set */
} tensor_of;

/* A block of a tensor's values, as a network takes them. */
static dunlin_status read_block(const tensor_of *from, int64_t first, int64_t n, float *block,
                                dunlin_error *error)
{
    const dunlin_weights_reader *set = from->set;
    const dunlin_status status = set->read_fn(set->ctx, from->index, first, n, block);
    if (status != DUNLIN_OK) {
        return dunlin__fail(error, status, "app model", 0, "tensor %.100s cannot be read: %s",
                            set->tensors[from->index].name, dunlin_status_text(status));
    }
    floor_variance(from->network, from->parameter, block, n);
    return DUNLIN_OK;
}

/* One parameter into the predictor, from `place` of its flat row on. */
static dunlin_status fill_parameter(const dunlin_model *network, int32_t parameter,
                                    const dunlin_weights_reader *set, dunlin_predictor *predictor,
                                    int64_t *place, dunlin_error *error)
{
    dunlin_parameter_info info = {0};
    float block[BLOCK_FLOATS];
    int32_t index = 0;
    DUNLIN_TRY(dunlin_model_parameter(network, parameter, &info));
    DUNLIN_TRY(find_tensor(set, &info, &index, error));
    const tensor_of from = {network, set, parameter, index};
    for (int64_t done = 0; done < info.n_elements;) {
        const int64_t left = info.n_elements - done;
        const int64_t n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        DUNLIN_TRY(read_block(&from, done, n, block, error));
        DUNLIN_TRY(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, *place + done, n,
                                                block, error));
        done += n;
    }
    *place += info.n_elements;
    return DUNLIN_OK;
}

dunlin_status dunlin_app_model_fill_predictor(const dunlin_app_model *model,
                                              const dunlin_model *network,
                                              dunlin_predictor *predictor, dunlin_error *out_error)
{
    dunlin_weights_reader set = {0};
    int64_t place = 0;
    DUNLIN_TRY(take_reader(model, network, &set, out_error));
    if (predictor == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "app model", 0, "predictor is NULL");
    }
    int64_t n_floats = 0;
    for (int32_t i = 0; i < set.n_tensors; i++) {
        n_floats += set.tensors[i].n_elements;
    }
    if (dunlin_predictor_n_weights(predictor, DUNLIN_WEIGHTS_ALL) != n_floats) {
        return dunlin__fail(out_error, DUNLIN_MISMATCH, "app model", 0,
                            "the predictor has %lld weights, the federated model %lld",
                            (long long)dunlin_predictor_n_weights(predictor, DUNLIN_WEIGHTS_ALL),
                            (long long)n_floats);
    }
    for (int32_t i = 0; i < dunlin_model_n_parameters(network); i++) {
        DUNLIN_TRY(fill_parameter(network, i, &set, predictor, &place, out_error));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_app_model_create_predictor(const dunlin_app_model *model,
                                                const dunlin_model *network,
                                                const dunlin_predictor_options *options,
                                                dunlin_predictor **out_predictor,
                                                dunlin_error *out_error)
{
    dunlin_weights_reader set = {0};
    dunlin_predictor *made = NULL;
    if (out_predictor == NULL) {
        return dunlin_predictor_create(network, options, NULL, out_error);
    }
    *out_predictor = NULL;
    DUNLIN_TRY(take_reader(model, network, &set, out_error));
    DUNLIN_TRY(dunlin_predictor_create(network, options, &made, out_error));
    const dunlin_status status = dunlin_app_model_fill_predictor(model, network, made, out_error);
    if (status != DUNLIN_OK) {
        dunlin_predictor_destroy(made);
        return status;
    }
    *out_predictor = made;
    return DUNLIN_OK;
}

/* In integers a parameter gets its scale before its values come. */
static dunlin_status begin_parameter(const dunlin_model *network, int32_t parameter,
                                     const dunlin_weights_reader *set, int32_t index,
                                     dunlin_trainer *trainer, dunlin_error *error)
{
    const int64_t n_elements = set->tensors[index].n_elements;
    float block[BLOCK_FLOATS];
    float largest = 0.0F;
    float unit = 0.0F;
    const tensor_of from = {network, set, parameter, index};
    for (int64_t done = 0; done < n_elements; done += BLOCK_FLOATS) {
        const int64_t n = n_elements - done < BLOCK_FLOATS ? n_elements - done : BLOCK_FLOATS;
        DUNLIN_TRY(read_block(&from, done, n, block, error));
        for (int64_t i = 0; i < n; i++) {
            /* Not a number stays, so that it is refused by name. */
            largest = fabsf(block[i]) <= largest ? largest : fabsf(block[i]);
        }
    }
    return dunlin_trainer_begin_parameter(trainer, parameter, largest, &unit);
}

/* One parameter into the trainer, from `place` of its flat row on. */
static dunlin_status fill_of_trainer(const dunlin_model *network, int32_t parameter,
                                     const dunlin_weights_reader *set, dunlin_trainer *trainer,
                                     int64_t *place, dunlin_error *error)
{
    dunlin_parameter_info info = {0};
    float block[BLOCK_FLOATS];
    int32_t index = 0;
    DUNLIN_TRY(dunlin_model_parameter(network, parameter, &info));
    DUNLIN_TRY(find_tensor(set, &info, &index, error));
    dunlin_status status = DUNLIN_OK;
    if (dunlin_trainer_n_scales(trainer) > 0) {
        status = begin_parameter(network, parameter, set, index, trainer, error);
    }
    const tensor_of from = {network, set, parameter, index};
    for (int64_t done = 0; status == DUNLIN_OK && done < info.n_elements; done += BLOCK_FLOATS) {
        const int64_t left = info.n_elements - done;
        const int64_t n = left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
        DUNLIN_TRY(read_block(&from, done, n, block, error));
        status = dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, *place + done, n, block);
    }
    if (status != DUNLIN_OK && (error == NULL || error->status == DUNLIN_OK)) {
        return dunlin__fail(error, status, "app model", 0, "tensor %.100s: %s", info.name,
                            dunlin_trainer_last_error(trainer)->text);
    }
    *place += info.n_elements;
    return status;
}

dunlin_status dunlin_app_model_fill_trainer(const dunlin_app_model *model,
                                            const dunlin_model *network, dunlin_trainer *trainer,
                                            dunlin_error *out_error)
{
    dunlin_weights_reader set = {0};
    int64_t place = 0;
    DUNLIN_TRY(take_reader(model, network, &set, out_error));
    if (trainer == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "app model", 0, "trainer is NULL");
    }
    for (int32_t i = 0; i < set.n_tensors; i++) {
        dunlin_parameter_info info = {0};
        int32_t index = 0;
        if (dunlin_trainer_n_parameters(trainer) != set.n_tensors ||
            dunlin_trainer_parameter(trainer, i, &info) != DUNLIN_OK) {
            return dunlin__fail(out_error, DUNLIN_MISMATCH, "app model", 0,
                                "the trainer has %d tensors, the federated model has %d",
                                (int)dunlin_trainer_n_parameters(trainer), (int)set.n_tensors);
        }
        DUNLIN_TRY(find_tensor(&set, &info, &index, out_error));
    }
    for (int32_t i = 0; i < set.n_tensors; i++) {
        DUNLIN_TRY(fill_of_trainer(network, i, &set, trainer, &place, out_error));
    }
    return DUNLIN_OK;
}

typedef struct exported {
    const dunlin_model *network;
    dunlin_weights_reader set;
} exported;

static dunlin_status read_exported(void *ctx, int32_t parameter, int64_t first, int64_t n,
                                   float *out_values)
{
    const exported *from = ctx;
    dunlin_parameter_info info = {0};
    int32_t index = 0;
    DUNLIN_TRY(dunlin_model_parameter(from->network, parameter, &info));
    DUNLIN_TRY(find_tensor(&from->set, &info, &index, NULL));
    DUNLIN_TRY(from->set.read_fn(from->set.ctx, index, first, n, out_values));
    floor_variance(from->network, parameter, out_values, n);
    return DUNLIN_OK;
}

dunlin_status dunlin_app_model_export_onnx(const dunlin_app_model *model,
                                           const dunlin_model *network, const char *path,
                                           dunlin_error *out_error)
{
    exported from = {.network = network};
    DUNLIN_TRY(take_reader(model, network, &from.set, out_error));
    return dunlin_model_export_onnx(network, read_exported, &from, path, out_error);
}
