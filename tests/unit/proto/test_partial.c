/*
 * test_partial.c - what a plan may say of part of its work.
 */
#include "make_message.h"

#include <criterion/criterion.h>

#include <random.h>
#include <string.h>

static dunlin_status encode(double share, dunlin_v1_algorithm_t algorithm, dunlin_error *error)
{
    static uint8_t bytes[8192];
    size_t n_bytes = 0;
    dunlin__assignment m;
    uint64_t state = test_seed(6);
    memset(&m, 0, sizeof m);
    make_assignment(&m, &state);
    const dunlin__training_plan plan = {.learner = DUNLIN_V1_LEARNER_KIND_BUILTIN,
                                        .n_epochs = 1,
                                        .batch_size = 8,
                                        .optimizer = DUNLIN_V1_OPTIMIZER_SGD,
                                        .learning_rate = 0.1F,
                                        .algorithm = algorithm,
                                        .weight_cap = 100,
                                        .update_form = DUNLIN_V1_UPDATE_FORM_DELTA,
                                        .update_encoding = DUNLIN_V1_ENCODING_F32,
                                        .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES,
                                        .partial_share = (float)share};
    m.plan = plan;
    m.kind = DUNLIN_V1_KIND_TRAIN;
    m.aggregation = DUNLIN_V1_AGGREGATION_PLAIN;
    m.required_features_count = 0;
    return dunlin__assignment_encode(&m, bytes, sizeof bytes, &n_bytes, error);
}

Test(partial, a_share_is_from_0_to_1_and_not_of_scaffold)
{
    dunlin_error error = {0};
    cr_expect_eq(encode(0.75, DUNLIN_V1_ALGORITHM_FEDAVG, &error), DUNLIN_OK, "%s", error.text);
    cr_expect_eq(encode(0, DUNLIN_V1_ALGORITHM_SCAFFOLD, &error), DUNLIN_OK, "%s", error.text);
    const double wrong[] = {-0.5, 1.5};
    for (int i = 0; i < 2; i++) {
        error = (dunlin_error){0};
        cr_expect_eq(encode(wrong[i], DUNLIN_V1_ALGORITHM_FEDAVG, &error), DUNLIN_PROTOCOL);
        cr_expect_not_null(strstr(error.text, "plan.partial_share"), "%s", error.text);
    }
    error = (dunlin_error){0};
    cr_expect_eq(encode(0.5, DUNLIN_V1_ALGORITHM_SCAFFOLD, &error), DUNLIN_PROTOCOL);
    cr_expect_not_null(strstr(error.text, "the algorithm is SCAFFOLD"), "%s", error.text);
}
