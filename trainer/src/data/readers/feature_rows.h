/*
 * feature_rows.h - data sets of feature vectors: rows of numbers with a class and a person each.
 *
 * The persons whose number is divisible by four make the test split, all others the training split:
 * nobody is in both.
 */
#ifndef DUNLIN_DATA_FEATURE_ROWS_H
#define DUNLIN_DATA_FEATURE_ROWS_H

#include "data/common/data.h"
#include "data/files/lines.h"

#define DUNLIN_FEATURES_TEST_EACH 4

/* Takes one row; a value that is not known is NAN, any other is finite. */
typedef struct dunlin_feature_visitor {
    void *ctx;
    dunlin_status (*row_fn)(void *ctx, int64_t person, int32_t label, const float *values,
                            dunlin_error *error);
} dunlin_feature_visitor;

/* Gives all rows of both splits to the visitor, in an order that does not change. */
typedef dunlin_status (*dunlin_features_read_fn)(dunlin_dataset *set,
                                                 const dunlin_data_request *request,
                                                 const dunlin_feature_visitor *visitor,
                                                 dunlin_error *error);

/*
 * Reads the rows twice and fills the set: mean and deviation of each feature over the known values
 * of the whole training split, whichever split is opened; then the examples. A value that is not
 * known becomes the mean; a feature that never changes has deviation 1. set->n_features and
 * n_classes are there before.
 */
dunlin_status dunlin__features_load(dunlin_dataset *set, const dunlin_data_request *request,
                                    dunlin_features_read_fn read_fn, dunlin_error *error);

/* Persons are numbered from 1 to this. */
#define DUNLIN_FEATURES_MOST_PERSONS DUNLIN_DATA_MAX_CLIENT

/* wisdm.c: ARFF, or CSV with a line of names. */
#define DUNLIN_WISDM_FEATURES 43
#define DUNLIN_WISDM_CLASSES 6
dunlin_status dunlin__wisdm_read(dunlin_bytes *bytes, const dunlin_feature_visitor *visitor,
                                 dunlin_error *error);

/* spsw.c: one recording, cut into windows. */
#define DUNLIN_SPSW_FEATURES 37
#define DUNLIN_SPSW_CLASSES 5
dunlin_status dunlin__spsw_read(dunlin_bytes *bytes, int64_t person, bool is_watch,
                                const dunlin_feature_visitor *visitor, dunlin_error *error);

#endif
