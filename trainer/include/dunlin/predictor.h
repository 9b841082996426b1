/*
 * predictor.h - inference alone: for an app that shows a model and does not train it.
 *
 * A predictor has the weights and the memory of a forward pass, nothing of a trainer's: no
 * gradients, no state of an optimiser, nothing that is saved for a backward pass. Its outputs are
 * those of a trainer with the same weights, to the bit.
 *
 * Example: the outputs of a model for the first of the app's examples.
 *
 * @code
 * extern const dunlin_source *images;
 * dunlin_error error = {0};
 * dunlin_model *model = NULL;
 * dunlin_predictor *predictor = NULL;
 * float logits[10];
 * if (dunlin_model_open("model.onnx", NULL, &model, &error) != DUNLIN_OK ||
 *     dunlin_predictor_create(model, NULL, &predictor, &error) != DUNLIN_OK ||
 *     dunlin_predictor_predict(predictor, images, 0, 1, logits, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * } else {
 *     printf("%.3f for the first class\n", (double)logits[0]);
 * }
 * dunlin_predictor_destroy(predictor);
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_PREDICTOR_H
#define DUNLIN_PREDICTOR_H

#include <dunlin/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_predictor dunlin_predictor;

/** Zero means the default. */
typedef struct dunlin_predictor_options {
    size_t struct_size;
    uint64_t budget_bytes; /* of everything that the predictor owns; 0: no limit, the fastest */
    int64_t batch;         /* examples that go through together at most; 0: 1 */
    int32_t n_threads;     /* 0: 1 */
    const char *isa;       /* instruction set; NULL: the best one, or DUNLIN_ISA's */
    dunlin_alloc alloc;    /* of everything, the arena included; zeroed: the library's own */
} dunlin_predictor_options;
#define DUNLIN_PREDICTOR_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_predictor_options)

/** What a predictor takes. */
typedef struct dunlin_predictor_report {
    size_t struct_size;
    uint64_t budget_bytes;
    uint64_t planned_bytes;     /* of everything */
    uint64_t weights_bytes;     /* and statistics */
    uint64_t activations_bytes; /* the pool that a forward pass runs in */
    uint64_t tables_bytes;      /* the copy of the network, graph and plan */
    int64_t batch;
    int64_t micro_batch; /* examples that go through a part of the network together, at most */
    double predicted_ms; /* of a whole batch */
    const char *isa;
} dunlin_predictor_report;
#define DUNLIN_PREDICTOR_REPORT_INIT DUNLIN_SIZED_INIT(dunlin_predictor_report)

/**
 * Plans a forward pass within the budget and takes in the model's weights. `options` may be NULL.
 * The model is not needed afterwards.
 *
 * @return OK; BUDGET (out_error->needed_bytes would do), ARGUMENT, VERSION, UNSUPPORTED
 * (instruction set, or a network without one row of outputs an example), IO and NUMERIC (weights),
 * MEMORY. *out_predictor is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_predictor_create(const dunlin_model *model, const dunlin_predictor_options *options,
                        dunlin_predictor **out_predictor, dunlin_error *out_error);

/** NULL is fine. No call may be at work on it. */
DUNLIN_API void dunlin_predictor_destroy(dunlin_predictor *predictor);

/**
 * The outputs of the source's examples [first, first + n), in `out_outputs`: n rows of as many
 * floats as the model has outputs. Labels are not looked at. Allocates nothing; one call at a time.
 *
 * @return OK; ARGUMENT (no such examples, no buffer), CALLBACK (the source), DATA (tokens outside
 * the vocabulary), NUMERIC (an input that is not finite), STATE (another call is at work).
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_predictor_predict(dunlin_predictor *predictor,
                                                                   const dunlin_source *source,
                                                                   int64_t first, int64_t n,
                                                                   float *out_outputs,
                                                                   dunlin_error *out_error);

/**
 * Other weights, as those of a newer round: elements [first, first + n) of the flat row of the
 * parameters of a kind, as dunlin_trainer_get_weights() gives them. All or none of the piece.
 *
 * @return OK; NUMERIC (a value that is not finite), MISMATCH (outside the row), ARGUMENT, STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_predictor_set_weights(dunlin_predictor *predictor,
                                                                       dunlin_weights_kind kind,
                                                                       int64_t first, int64_t n,
                                                                       const float *values,
                                                                       dunlin_error *out_error);

/** @return elements of all parameters of a kind. */
DUNLIN_API int64_t dunlin_predictor_n_weights(const dunlin_predictor *predictor,
                                              dunlin_weights_kind kind);

/** @return OK; ARGUMENT for a report without its struct_size. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_predictor_get_report(const dunlin_predictor *predictor, dunlin_predictor_report *out_report);

#ifdef __cplusplus
}
#endif

#endif
