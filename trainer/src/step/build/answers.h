/*
 * answers.h - labels and targets of an output, from a source to the loss.
 */
#ifndef DUNLIN_STEP_ANSWERS_H
#define DUNLIN_STEP_ANSWERS_H

#include "graph/step.h"

/* What an output asks of the examples. */
typedef struct dunlin_answer {
    uint32_t index;    /* of the output */
    int32_t n_classes; /* or targets of a row */
    int64_t n_rows;    /* of the output: labels of an example */
    bool is_image;     /* targets come channels first, and lie as the output does */
    dunlin_loss loss;
} dunlin_answer;

/* Labels or targets of an example; each has four bytes. */
int64_t dunlin__answer_width(const dunlin_answer *of);

/*
 * Those of n examples, which lie where the loss reads them, as the source gave them: they are
 * checked, and become what the loss takes. `scratch` has room for an example's targets. DATA.
 */
DUNLIN_NODISCARD dunlin_status dunlin__answer_take(const dunlin_step_run *run,
                                                   const dunlin_answer *of, const int64_t *indices,
                                                   int64_t n, void *answers, float *scratch);

#endif
