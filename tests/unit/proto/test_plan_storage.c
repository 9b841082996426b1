/*
 * test_plan_storage.c - a plan that says how steps store what they keep: with its feature, and not
 * with a precision.
 */
#include "make_message.h"

#include <criterion/criterion.h>

#include <random.h>
#include <string.h>

static void make_stored(dunlin__assignment *m)
{
    uint64_t state = test_seed(7);
    memset(m, 0, sizeof *m);
    make_assignment(m, &state);
    const dunlin__training_plan plan = {.learner = DUNLIN_V1_LEARNER_KIND_BUILTIN,
                                        .n_epochs = 1,
                                        .batch_size = 8,
                                        .optimizer = DUNLIN_V1_OPTIMIZER_SGD,
                                        .learning_rate = 0.1F,
                                        .algorithm = DUNLIN_V1_ALGORITHM_FEDAVG,
                                        .weight_cap = 100,
                                        .update_form = DUNLIN_V1_UPDATE_FORM_DELTA,
                                        .update_encoding = DUNLIN_V1_ENCODING_F32,
                                        .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES,
                                        .storage = DUNLIN_V1_STORAGE_INT8};
    m->plan = plan;
    m->kind = DUNLIN_V1_KIND_TRAIN;
    m->aggregation = DUNLIN_V1_AGGREGATION_PLAIN;
    m->required_features_count = 1;
    m->required_features[0] = DUNLIN_V1_FEATURE_STORAGE;
}

static dunlin_status encode(const dunlin__assignment *m, dunlin__assignment *out,
                            dunlin_error *error)
{
    static uint8_t bytes[8192];
    size_t n_bytes = 0;
    const dunlin_status status = dunlin__assignment_encode(m, bytes, sizeof bytes, &n_bytes, error);
    return status == DUNLIN_OK && out != NULL
               ? dunlin__assignment_decode(bytes, n_bytes, out, error)
               : status;
}

Test(plan_storage, it_comes_back_as_it_was_said)
{
    static dunlin__assignment m;
    static dunlin__assignment back;
    dunlin_error error = {0};
    for (int i = DUNLIN_V1_STORAGE_EXACT; i <= DUNLIN_V1_STORAGE_INT8; i++) {
        make_stored(&m);
        m.plan.storage = (dunlin_v1_storage_t)i;
        cr_assert_eq(encode(&m, &back, &error), DUNLIN_OK, "%s", error.text);
        cr_expect_eq(back.plan.storage, (dunlin_v1_storage_t)i);
    }
    /* Steps are plain ones, so SCAFFOLD has no need to refuse it. */
    make_stored(&m);
    m.plan.algorithm = DUNLIN_V1_ALGORITHM_SCAFFOLD;
    cr_expect_eq(encode(&m, NULL, &error), DUNLIN_OK, "%s", error.text);
}

#define REFUSED(change, words)                                                                     \
    do {                                                                                           \
        static dunlin__assignment m;                                                               \
        dunlin_error error = {0};                                                                  \
        make_stored(&m);                                                                           \
        change;                                                                                    \
        cr_expect_eq(encode(&m, NULL, &error), DUNLIN_PROTOCOL, "%s", words);                      \
        cr_expect_not_null(strstr(error.text, words), "%s", error.text);                           \
    } while (0)

Test(plan_storage, a_plan_that_contradicts_itself_is_refused)
{
    REFUSED(m.required_features_count = 0,
            "plan.storage is given, but required_features has no 23");
    REFUSED(m.required_features[0] = DUNLIN_V1_FEATURE_PRECISION,
            "plan.storage is given, but required_features has no 23");
    REFUSED(m.plan.storage = (dunlin_v1_storage_t)3, "plan.storage is 3");
    REFUSED(strcpy(m.plan.precision, "octo");
            m.required_features[m.required_features_count++] = DUNLIN_V1_FEATURE_PRODUCT_PRECISION,
            "plan.storage is given, but so is a precision");
}
