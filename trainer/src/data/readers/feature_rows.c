/*
 * feature_rows.c - fills a data set with feature vectors, and finds their means and deviations.
 *
 * Invariant: mean and deviation follow from the training split alone, whichever split is opened and
 * however few of its examples are kept. Source: Welford, "Note on a method for calculating
 * corrected sums of squares and products", 1962.
 */
#include "feature_rows.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_EXAMPLES 1000000

/* One pass over the rows. */
typedef struct feature_pass {
    dunlin_dataset *set;
    bool is_test;    /* the split that is opened */
    bool is_filling; /* the second pass */
    int64_t n;       /* rows of that split so far */
    int64_t counts[DUNLIN_DATA_MAX_CHANNELS];
    double means[DUNLIN_DATA_MAX_CHANNELS];
    double squares[DUNLIN_DATA_MAX_CHANNELS]; /* sums of squared distances from the mean */
} feature_pass;

static void add_to_moments(feature_pass *pass, const float *values)
{
    for (int32_t f = 0; f < pass->set->n_features; f++) {
        if (isnan(values[f])) {
            continue;
        }
        const double value = (double)values[f];
        const double before = value - pass->means[f];
        pass->counts[f]++;
        pass->means[f] += before / (double)pass->counts[f];
        pass->squares[f] += before * (value - pass->means[f]);
    }
}

static void keep(dunlin_dataset *set, int64_t index, int64_t person, int32_t label,
                 const float *values)
{
    const size_t n_features = (size_t)set->n_features;
    uint8_t *to = set->pixels + (size_t)index * n_features * sizeof(float);
    for (size_t f = 0; f < n_features; f++) {
        const float value = isnan(values[f]) ? set->mean[f] : values[f];
        memcpy(to + f * sizeof value, &value, sizeof value);
    }
    set->labels[index] = (uint16_t)label;
    set->clients[index] = (int32_t)person;
}

static dunlin_status take_row(void *ctx, int64_t person, int32_t label, const float *values,
                              dunlin_error *error)
{
    feature_pass *pass = ctx;
    const bool is_test = person % DUNLIN_FEATURES_TEST_EACH == 0;
    if (!pass->is_filling && !is_test) {
        add_to_moments(pass, values);
    }
    if (is_test != pass->is_test) {
        return DUNLIN_OK;
    }
    if (pass->n == MAX_EXAMPLES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s: more examples than the limit of %d", pass->set->title,
                            MAX_EXAMPLES);
    }
    if (pass->is_filling && pass->n < pass->set->n) {
        keep(pass->set, pass->n, person, label, values);
    }
    pass->n++;
    return DUNLIN_OK;
}

static void settle_moments(const feature_pass *pass)
{
    for (int32_t f = 0; f < pass->set->n_features; f++) {
        const double n = (double)pass->counts[f];
        const double deviation = n > 0.0 ? sqrt(pass->squares[f] / n) : 0.0;
        pass->set->mean[f] = (float)pass->means[f];
        /* Rounding alone must not make a constant large. */
        const bool is_constant = deviation <= 1e-6 * fabs(pass->means[f]) || deviation < 1e-12;
        pass->set->std[f] = is_constant ? 1.0F : (float)deviation;
    }
}

dunlin_status dunlin__features_load(dunlin_dataset *set, const dunlin_data_request *request,
                                    dunlin_features_read_fn read_fn, dunlin_error *error)
{
    feature_pass pass = {.set = set, .is_test = request->split == DUNLIN_SPLIT_TEST};
    const dunlin_feature_visitor visitor = {&pass, take_row};
    DUNLIN_TRY(read_fn(set, request, &visitor, error));
    const int64_t n = pass.n;
    if (n == 0) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: no example of the %s split: person numbers that %s by %d",
                            set->title, pass.is_test ? "test" : "training",
                            pass.is_test ? "divide" : "do not divide", DUNLIN_FEATURES_TEST_EACH);
    }
    settle_moments(&pass);
    /* Stored as one row of bytes: nothing resizes it. */
    dunlin__data_set_shape(set, 1, 1, set->n_features * (int32_t)sizeof(float));
    DUNLIN_TRY(dunlin__data_alloc(set, dunlin__data_limit(request, n), true, error));
    pass.n = 0;
    pass.is_filling = true;
    DUNLIN_TRY(read_fn(set, request, &visitor, error));
    if (pass.n != n) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "the files of %s changed while they were read", set->title);
    }
    return dunlin__data_number_clients(set, error);
}
