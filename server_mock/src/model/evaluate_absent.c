/*
 * evaluate_absent.c - stands in for the trainer in a build without one: no named models, no
 * evaluation.
 *
 * Invariant: nothing here succeeds, and each failure says why.
 */
#include "evaluate.h"

#include <mem/support.h>

dunlin_status dunlin__evaluator_open(const dunlin__server_task *task,
                                     const dunlin_server_options *options,
                                     const dunlin_alloc *alloc, dunlin__layout *out_layout,
                                     dunlin__evaluator **out_evaluator, dunlin_error *error)
{
    (void)options;
    (void)alloc;
    (void)out_layout;
    (void)out_evaluator;
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "evaluate", 0,
                        "model %.80s: this server was built without the trainer; give tensors",
                        task->model);
}

void dunlin__evaluator_close(dunlin__evaluator *evaluator)
{
    (void)evaluator;
}

static dunlin_status no_values(void *ctx, uint64_t first, size_t n, float *out_values,
                               dunlin_error *error)
{
    (void)ctx;
    (void)first;
    (void)n;
    (void)out_values;
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "evaluate", 0,
                        "evaluating needs a server that is built with DUNLIN_TRAINER");
}

dunlin__values dunlin__evaluator_initial(dunlin__evaluator *evaluator)
{
    return (dunlin__values){.ctx = evaluator, .values_fn = no_values};
}

bool dunlin__evaluator_has_test_set(const dunlin__evaluator *evaluator)
{
    (void)evaluator;
    return false;
}

dunlin_status dunlin__evaluator_run(dunlin__evaluator *evaluator, const char *weights_path,
                                    double *out_accuracy, double *out_loss, dunlin_error *error)
{
    (void)evaluator;
    (void)out_accuracy;
    (void)out_loss;
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "evaluate", 0,
                        "%.120s: this server was built without the trainer", weights_path);
}

size_t dunlin__evaluator_n_pieces(const dunlin__evaluator *evaluator)
{
    (void)evaluator;
    return 0;
}

dunlin_status dunlin__evaluator_load(dunlin__evaluator *evaluator, const dunlin__values *values,
                                     dunlin_error *error)
{
    (void)values;
    return dunlin__evaluator_run(evaluator, "the weights", NULL, NULL, error);
}

dunlin_status dunlin__evaluator_judge(dunlin__evaluator *evaluator, size_t piece,
                                      dunlin__figures *out_figures, dunlin_error *error)
{
    (void)piece;
    (void)out_figures;
    return dunlin__evaluator_run(evaluator, "the test set", NULL, NULL, error);
}

void dunlin__figures_join(const dunlin__figures *pieces, size_t n, double *out_accuracy,
                          double *out_loss)
{
    (void)pieces;
    (void)n;
    *out_accuracy = 0.0;
    *out_loss = 0.0;
}

dunlin_status dunlin__evaluator_export(dunlin__evaluator *evaluator, const char *weights_path,
                                       const char *onnx_path, dunlin_error *error)
{
    (void)evaluator;
    (void)onnx_path;
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "evaluate", 0,
                        "%.120s: this server was built without the trainer", weights_path);
}

dunlin_status dunlin__evaluator_export_values(dunlin__evaluator *evaluator,
                                              const dunlin__values *values, const char *onnx_path,
                                              dunlin_error *error)
{
    (void)values;
    return dunlin__evaluator_export(evaluator, "the weights", onnx_path, error);
}

void dunlin__evaluator_stop(dunlin__evaluator *evaluator)
{
    (void)evaluator;
}
