/*
 * augment.h - --augment, the same for every program that takes it.
 */
#ifndef SAMPLES_COMMON_AUGMENT_H
#define SAMPLES_COMMON_AUGMENT_H

#include "common/args.h"

/* What it asks for; 0 and false: not that. Units as in dunlin_pipeline_options. */
typedef struct augment_choice {
    bool has_crop, is_flip;
    int64_t padding; /* of a crop */
    int64_t cutout, shift;
    double mixup, noise;
} augment_choice;

#define AUGMENT_VALUE "crop=PAD,flip,cutout=SIDE,mixup=ALPHA,noise=F,shift=N"
#define AUGMENT_HELP                                                                               \
    "training, some of: --random-crop and --flip; a square of zeros; two examples mixed by a "     \
    "draw "                                                                                        \
    "of Beta(ALPHA, ALPHA); noise of deviation F in normalised inputs; signals moved by up to N "  \
    "places. Drawn by seed, epoch and example, whatever the batch"

/* Reads the list (NULL: nothing is asked for); EXIT_OK, or EXIT_MISUSE (reported). */
int augment_parse(const program_info *program, const char *given, augment_choice *out_choice);

#endif
