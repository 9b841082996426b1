/*
 * app_model.h - the newest federated model of a device, for the app.
 *
 * The client keeps the base of the last round that it took part in, and what a run has left when it
 * is over (dunlin_client_options.model_keeping; on by default with the built-in learner). It is on
 * the storage, so it is there between rounds, after the last one and after a restart. To it belong
 * the tensors that never leave the device (personal layers), as the last accepted round has left
 * them. Where models come down packed it is what this device was given, rounded to that; what a run
 * has left comes whole. dunlin/builtin.h makes predictions with it and writes it as an ONNX file.
 *
 * All calls may come from any thread, also while a round of the client runs: a handle stays the
 * model that it was when it was opened. A handle may outlive its client, and is used by any number
 * of threads at a time.
 *
 * Example: the bias of the last layer of the newest model.
 *
 * @code
 * extern dunlin_client *client;
 * dunlin_app_model *model = NULL;
 * dunlin_app_model_info info = DUNLIN_APP_MODEL_INFO_INIT;
 * dunlin_error error = {0};
 * float bias[10];
 * if (dunlin_app_model_open(client, &model, &error) != DUNLIN_OK ||
 *     dunlin_app_model_get_info(model, &info) != DUNLIN_OK ||
 *     dunlin_app_model_get_tensor(model, "classifier.5.bias", bias, 10, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * } else {
 *     printf("after round %llu: %g\n", (unsigned long long)info.round, (double)bias[0]);
 * }
 * dunlin_app_model_close(model);
 * @endcode
 */
#ifndef DUNLIN_APP_MODEL_H
#define DUNLIN_APP_MODEL_H

#include <dunlin/client.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_app_model dunlin_app_model;

/** What a model is. */
typedef struct dunlin_app_model_info {
    size_t struct_size;
    const char *task; /* the server's name of it; valid until the handle is closed */
    uint64_t run_epoch;
    uint64_t round;     /* rounds of the run that lie behind it; 0: what the run began from */
    bool is_final;      /* the run is over, and has left this */
    uint8_t sha256[32]; /* of its manifest, which has the hash of each chunk: the same number is
                           the same model from the server, to the bit */
    int32_t n_tensors;
    int32_t n_own;    /* of these, values of this device alone (LOCAL) */
    uint64_t n_bytes; /* on the storage, without the device's own */
} dunlin_app_model_info;
#define DUNLIN_APP_MODEL_INFO_INIT DUNLIN_SIZED_INIT(dunlin_app_model_info)

/**
 * Opens the newest model that the client has kept. Reads it once, to see that it is whole (each
 * chunk has its hash); nothing of it is held in memory but a table of its tensors.
 *
 * @return OK; STATE if there is none yet, or none is kept; DIGEST or DATA if it was damaged or cut
 * short on the storage (the text names the file; the client fetches it anew in its next round);
 * VERSION if a newer library has written it; LOCKED, IO of the storage; ARGUMENT without a client;
 * MEMORY. After a failure *out_model is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_app_model_open(dunlin_client *client,
                                                                dunlin_app_model **out_model,
                                                                dunlin_error *out_error);
/** NULL is fine. */
DUNLIN_API void dunlin_app_model_close(dunlin_app_model *model);

/** @return OK; ARGUMENT without a model, or with an info that was not started from its INIT. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_app_model_get_info(const dunlin_app_model *model, dunlin_app_model_info *out_info);

/**
 * The whole model as a set of tensors that is read in pieces, as a learner's base: valid until the
 * handle is closed. Reading gives ARGUMENT outside a tensor, and IO.
 *
 * @return OK; ARGUMENT without a model or a place.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_app_model_get_reader(const dunlin_app_model *model, dunlin_weights_reader *out_reader);

/**
 * One tensor by its name: `n` floats into out_values, row-major.
 *
 * @return OK; ARGUMENT for a name that is none; MISMATCH if it has not n elements; IO.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_app_model_get_tensor(const dunlin_app_model *model,
                                                                      const char *name,
                                                                      float *out_values, int64_t n,
                                                                      dunlin_error *out_error);

#ifdef __cplusplus
}
#endif

#endif
