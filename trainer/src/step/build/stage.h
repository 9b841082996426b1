/*
 * stage.h - from examples as a source gave them to the network's inputs.
 */
#ifndef DUNLIN_STEP_STAGE_H
#define DUNLIN_STEP_STAGE_H

#include "graph/step.h"

typedef struct dunlin_staging {
    const dunlin_step_input *inputs; /* the graph's */
    uint32_t n_inputs;
    int64_t n_elements; /* of one example: of all inputs */
    int32_t channels;   /* the most of any input */
} dunlin_staging;

/*
 * Examples [first, first + n) of the slice, which lie in `raw` as they were read: in one array, or
 * the array of an input from room * 4 * its first element on. The workspace begins with room for
 * two numbers a channel; the operands begin with the inputs. NUMERIC if an element is not finite.
 */
DUNLIN_NODISCARD dunlin_status dunlin__stage_examples(const dunlin_kernel_call *call,
                                                      const dunlin_staging *params, int64_t first,
                                                      int64_t n, int64_t room, unsigned char *raw);

#endif
