/*
 * data.h - --data and --dataset, the same for every program.
 */
#ifndef SAMPLES_COMMON_DATA_H
#define SAMPLES_COMMON_DATA_H

#include <dunlin/dataset.h>

/* Which data set, and where its files are. */
typedef struct data_choice {
    const char *name;
    const char *folder; /* NULL: none */
} data_choice;

/*
 * From the values of the flags (NULL: not given). --data names a folder or is "synthetic"; without
 * it DUNLIN_DATA of the environment is the folder. Without --dataset: fashion_mnist if --data named
 * a folder, else synthetic. NULL, or one line that says what does not fit together.
 */
const char *data_choose(const char *data, const char *dataset, data_choice *out_choice);

/* Channels of a data set's images, before it is opened: 3 for colour, else 1. */
int32_t data_channels(const data_choice *choice);

#endif
