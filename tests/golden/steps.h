/*
 * steps.h - ten steps of SGD of a whole network, from weights and examples that both sides compute,
 * against what PyTorch in float64 made of them (data/steps_NAME.golden; make_nets.py says how).
 *
 * Invariant: nothing here knows a network; what it holds for one it holds for all.
 */
#ifndef DUNLIN_TESTS_STEPS_H
#define DUNLIN_TESTS_STEPS_H

#include <dunlin/trainer.h>

/* What of the file a builder needs. */
typedef struct steps_setup {
    int32_t image; /* or the tokens of an example, where vocabulary > 0 */
    int32_t channels;
    int32_t batch;
    int32_t classes;
    int32_t vocabulary; /* 0: images */
    int32_t salt;       /* of the examples */
} steps_setup;

/* The setup that data/steps_NAME.golden was made with. */
steps_setup steps_open(const char *name);

/*
 * Trains `model` with the file's setup and the rest of `options` (instruction set, threads, fusing)
 * and fails unless the trained parameters together, and the running statistics together, are at
 * most four times as far from float64 as PyTorch's float32 is. Dropout is switched off, in the
 * model itself. `what` names the configuration.
 */
void steps_check(const char *name, dunlin_model *model, const dunlin_trainer_options *options,
                 const char *what);

#endif
