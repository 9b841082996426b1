/*
 * step_support.h - what the tests of the trainer share: a made-up source, random networks, and
 * short trainings whose weights can be compared bit by bit.
 */
#ifndef DUNLIN_TESTS_STEP_SUPPORT_H
#define DUNLIN_TESTS_STEP_SUPPORT_H

#include <dunlin/trainer.h>

/* Examples made from their index: a bump per class in noise, so that a few steps lower the loss. */
typedef struct test_source {
    dunlin_source source; /* its ctx is this struct, which must not move */
    int64_t n_elements;
    int32_t n_classes;
    int64_t vocabulary; /* of a model that reads tokens, else 0 */
    int64_t n_calls;
    int64_t n_read;       /* examples handed out */
    int64_t fail_at_read; /* fails when so many examples have been handed out; -1: never */
    int64_t nan_index;    /* this example is not finite; -1: none */
    int32_t bad_label;    /* the label of example 0; -1: its own */
} test_source;
void test_source_init(test_source *source, const dunlin_model *model, int64_t n_examples,
                      dunlin_dtype dtype);

/* A small network over images, drawn at random: every layer there is, residuals, concat, fan-out.
 */
dunlin_model *test_random_model(uint64_t *rng, bool has_batch_norm);

/* The same with a second output of as many classes, of what a layer in the middle makes: a label
 * answers both. */
dunlin_model *test_random_pair_model(uint64_t *rng, bool has_batch_norm);

/* Always the same: convolution, ReLU, pooling, dense; with batch norm or without. */
dunlin_model *test_small_model(bool has_batch_norm);
/* Dense, ReLU, dense over `n_features` features. */
dunlin_model *test_dense_model(int64_t n_features, int32_t n_classes);

dunlin_trainer_options test_options(int64_t batch);

/* All weights and statistics; the caller frees them. */
float *test_weights(const dunlin_trainer *trainer, int64_t *out_n);

/* Creates, takes `n_steps` steps over following batches (the last one shorter), hands out weights.
 */
float *test_train(const dunlin_model *model, const dunlin_trainer_options *options, int n_steps,
                  int64_t *out_n);

/* Creates or fails the test with the detail. */
dunlin_trainer *test_create(const dunlin_model *model, const dunlin_trainer_options *options);

/* True if all bits agree. */
bool test_same_bits(const float *a, const float *b, int64_t n);

/* Trains on 40 examples, or fails the test with the detail. */
void test_fit_epochs(dunlin_trainer *trainer, const dunlin_model *model, int64_t n_epochs);

/* Two trainers' weights and statistics agree in all bits, or (false) do not. */
void test_expect_same_weights(const dunlin_trainer *a, const dunlin_trainer *b, bool is_same);

/* The trainer's last error has this in its text. */
void test_expect_text(const dunlin_trainer *trainer, const char *text);

/* A path of the test's own in the folder of temporary files; the caller frees it. */
char *test_temp_path(const char *name);

#endif
