/*
 * product_support.h - what the tests of steps whose products are in integers share.
 */
#ifndef DUNLIN_TESTS_PRODUCT_SUPPORT_H
#define DUNLIN_TESTS_PRODUCT_SUPPORT_H

#include "integer_support.h"
#include "product_model.h"

#define PRODUCT_ROWS 5

/* The precisions, and what the model is to do for each. */
typedef struct product_row {
    const char *name;
    product_rules rules;
} product_row;
extern const product_row product_rows[PRODUCT_ROWS];

/* Rate 1/8, seed 7, and nothing else. */
dunlin_trainer_options product_options(const char *precision, int64_t batch);
/* Batch norm, residual sums, a depthwise convolution, concatenation, pools, ReLU6, fan-out. */
dunlin_model *product_normed_model(void);

#endif
