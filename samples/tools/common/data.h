/*
 * data.h - --data and --dataset, the same for every program.
 */
#ifndef SAMPLES_COMMON_DATA_H
#define SAMPLES_COMMON_DATA_H

#include "progress.h"

#include <dunlin/dataset.h>
#include <dunlin/model.h>

/* Which data set, and where its files are. */
typedef struct data_choice {
    const char *name;
    const char *folder;   /* NULL: none */
    uint64_t index_bytes; /* the most that the index of a folder of pictures may take; 0: any */
} data_choice;

/*
 * From the values of the flags (NULL: not given). --data names a folder or is "synthetic"; without
 * it DUNLIN_DATA of the environment is the folder. Without --dataset: fashion_mnist if --data named
 * a folder, else synthetic. NULL, or one line that says what does not fit together.
 */
const char *data_choose(const char *data, const char *dataset, data_choice *out_choice);

/* NULL, or one line that says which names there are. */
const char *data_check_name(const data_choice *choice);

/* Whether it is a folder of pictures, which may have any size each. */
bool data_is_folder(const data_choice *choice);

/* Whether it is a text, whose tokens have the next ones as labels. */
bool data_is_text(const data_choice *choice);

/* Whether it is rows of tokens with a class each: what somebody says, and who. */
bool data_is_speeches(const data_choice *choice);

/* Whether its examples take the shape that is asked for, whatever that is. */
bool data_has_own_shape(const data_choice *choice);

/*
 * The name under which the data set is opened for a model, and the options that give its examples
 * the shape the model takes (images square; vectors of features; tokens from the synthetic set
 * alone). NULL, or one line that says what does not fit; `model_name` is what it calls the model.
 */
const char *data_fit(const data_choice *choice, const dunlin_model *model, const char *model_name,
                     const char **out_name, dunlin_dataset_options *options);

/* Fills in what is 0 of the options of a ready-made network, so that it takes the data set: three
 * channels for colour; features as channels of one pixel, and their classes; of a user's own files,
 * which are opened for it, what they have. */
void data_fill_zoo(const data_choice *choice, const char *model, dunlin_zoo_options *options);

/* A progress line for opening the data set; progress_end() when it is open. */
void data_begin_reading(const data_choice *choice, progress *line);

/* Features of an example, before the data set is opened; 0: it has images. */
int32_t data_n_features(const data_choice *choice);

/* The ready-made network that is taken if none is named. */
const char *data_default_model(const data_choice *choice);

#endif
