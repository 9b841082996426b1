/*
 * evaluate.h - what the server needs of a trainer: a model's tensors and first weights, its
 * accuracy, its ONNX file.
 *
 * evaluate.c and evaluate_plan.c alone of the server include the trainer; evaluate_absent.c stands
 * in for it in a build without one, where only tasks with a tensor table work.
 */
#ifndef DUNLIN_SERVER_EVALUATE_H
#define DUNLIN_SERVER_EVALUATE_H

#include "models.h"
#include "task/options.h"
#include "task/task.h"

typedef struct dunlin__evaluator dunlin__evaluator;

/* Opens the task's named model and, if asked for, the test set; gives the model's tensor table
 * (freed with dunlin__free_array(alloc, tensors, n_tensors, sizeof *tensors)). */
DUNLIN_NODISCARD dunlin_status dunlin__evaluator_open(const dunlin__server_task *task,
                                                      const dunlin_server_options *options,
                                                      const dunlin_alloc *alloc,
                                                      dunlin__layout *out_layout,
                                                      dunlin__evaluator **out_evaluator,
                                                      dunlin_error *error);
/* NULL is fine. */
void dunlin__evaluator_close(dunlin__evaluator *evaluator);

/* The first weights, from the seed or the model's file. Borrowed from the evaluator. */
dunlin__values dunlin__evaluator_initial(dunlin__evaluator *evaluator);

/* True if a test set is open. */
bool dunlin__evaluator_has_test_set(const dunlin__evaluator *evaluator);

/* Mean loss and accuracy of a file of weights over the test set. */
DUNLIN_NODISCARD dunlin_status dunlin__evaluator_run(dunlin__evaluator *evaluator,
                                                     const char *weights_path, double *out_accuracy,
                                                     double *out_loss, dunlin_error *error);

/* Sums over some examples, which any number of evaluators may take a part of: the same pieces, put
 * together in their order, are the same to the bit. */
typedef struct dunlin__figures {
    double right, n_counted;
    double loss, weight;
} dunlin__figures;

/* The test set in pieces of whole batches; 0: there is none. */
size_t dunlin__evaluator_n_pieces(const dunlin__evaluator *evaluator);
/* The weights that pieces are judged with from here on. */
DUNLIN_NODISCARD dunlin_status dunlin__evaluator_load(dunlin__evaluator *evaluator,
                                                      const dunlin__values *values,
                                                      dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__evaluator_judge(dunlin__evaluator *evaluator, size_t piece,
                                                       dunlin__figures *out_figures,
                                                       dunlin_error *error);
/* Means of all pieces. */
void dunlin__figures_join(const dunlin__figures *pieces, size_t n, double *out_accuracy,
                          double *out_loss);

/* Writes a file of weights as an ONNX file. */
DUNLIN_NODISCARD dunlin_status dunlin__evaluator_export(dunlin__evaluator *evaluator,
                                                        const char *weights_path,
                                                        const char *onnx_path, dunlin_error *error);

DUNLIN_NODISCARD dunlin_status dunlin__evaluator_export_values(dunlin__evaluator *evaluator,
                                                               const dunlin__values *values,
                                                               const char *onnx_path,
                                                               dunlin_error *error);

/* Makes a running evaluation end soon. Any thread; NULL is fine. */
void dunlin__evaluator_stop(dunlin__evaluator *evaluator);

#endif
