/*
 * builtin_place.h - how far a task's training has come, kept with the trainer's checkpoint.
 */
#ifndef DUNLIN_SDK_BUILTIN_PLACE_H
#define DUNLIN_SDK_BUILTIN_PLACE_H

#include <dunlin/trainer.h>

typedef struct dunlin__builtin_place {
    int64_t epoch; /* of the cursor of fit */
    int64_t position;
    int64_t n_examples; /* the order of examples depends on it */
    int64_t n_counted;  /* examples so far whose label counts */
    int64_t n_steps;
    double loss_sum; /* over them */
    double right_sum;
    double weight_sum; /* of them */
    uint64_t seed;
} dunlin__builtin_place;

/* A checkpoint of the trainer at `path`, written whole or not at all, with the place in it. */
DUNLIN_NODISCARD dunlin_status dunlin__place_save(dunlin_trainer *trainer, const char *path,
                                                  const dunlin__builtin_place *place);

/* Loads the checkpoint into the trainer. *out_has_place is false if it has none that can be read;
 * its numbers are not negative. */
DUNLIN_NODISCARD dunlin_status dunlin__place_restore(dunlin_trainer *trainer, const char *path,
                                                     dunlin__builtin_place *out_place,
                                                     bool *out_has_place);

#endif
