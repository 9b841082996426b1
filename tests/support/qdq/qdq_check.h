/*
 * qdq_check.h - holds QDQ models against a trainer's predictions by check_qdq.py, in numpy.
 */
#ifndef DUNLIN_TESTS_QDQ_CHECK_H
#define DUNLIN_TESTS_QDQ_CHECK_H

#include <dunlin/trainer.h>

/* The first n examples of a source and what a trainer predicts of them as PREFIX.x and PREFIX.y,
 * beside PREFIX.onnx, which the trainer's QDQ model is written to; or the test fails. n_inputs,
 * n_outputs: of an example; the source's are float32, and `scale` is what they are multiplied by.
 */
void qdq_write(dunlin_trainer *trainer, const dunlin_source *source, int n, int64_t n_inputs,
               int64_t n_outputs, const char *prefix);
/* The arguments of check_qdq.py go there. False: python3-onnx is not installed. */
bool qdq_is_checkable(void);
/* A Python that has numpy and onnx; NULL: none is installed. */
const char *qdq_python(void);
/* What check_qdq.py ends with; 0: it agrees. */
int qdq_check(const char *arguments);
/* What qdq_write() has written. */
void qdq_remove(const char *prefix);

#endif
