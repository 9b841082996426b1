/*
 * test_int8.c - a round in a precision of int8: what the learner is told, and that its weights go
 * up as they are, in a byte each.
 */
#include "client/in_world.h"

#define INT8_TEST(name) WORLD_TEST(int8, name)
#define UPDATE_BYTES (FAKE_VALUES + 4 * FAKE_TENSORS)

/* A base and a step of whole numbers of 2^-6, so that the learner's weights are int8. */
static void want_int8(void)
{
    dunlin__training_plan *plan = &w.server.plan;
    for (int i = 0; i < FAKE_VALUES; i++) {
        w.server.values[i] = (float)(i % 100 - 50) / 64.0F;
    }
    w.learner.step = 1.0F / 64.0F;
    w.server.has_no_statistic = true;
    fake_server_remake_base(&w.server);
    (void)strcpy(plan->precision, "niti");
    plan->grad_bits = 4;
    plan->learning_rate = 0.0F;
    plan->momentum = 0.0F;
    plan->update_form = DUNLIN_V1_UPDATE_FORM_WEIGHTS;
    plan->update_encoding = DUNLIN_V1_ENCODING_INT8_SCALE;
    w.server.required_feature = DUNLIN_V1_FEATURE_PRECISION;
}

static void expect_weights(void)
{
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        const float wanted = w.server.values[i] + fake_learner_update(&w.learner, &w.server, i);
        cr_assert(w.server.update[i] == wanted, "value %lld: %a, not %a", (long long)i,
                  (double)w.server.update[i], (double)wanted);
    }
}

INT8_TEST(whole_weights_go_up_exactly_in_a_byte_each)
{
    want_int8();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_str_eq(w.learner.precision, "niti");
    cr_expect_eq(w.learner.task.grad_bits, 4);
    cr_expect_eq(w.server.commit.encoding, DUNLIN_V1_ENCODING_INT8_SCALE);
    cr_expect_eq(w.server.update_bytes, UPDATE_BYTES);
    expect_weights();
}

INT8_TEST(a_plan_without_a_precision_tells_of_none)
{
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_str_eq(w.learner.precision, "");
    cr_expect_eq(w.learner.task.grad_bits, 0);
}

/* A cut at any exchange sends the same bytes again: the server compares manifests. */
INT8_TEST(a_cut_at_any_exchange_sends_the_same_bytes)
{
    want_int8();
    for (int at = 0; at < 14; at++) {
        w.server.spoil = at % 2 == 0 ? FAKE_LOST_REPLY : FAKE_LOST_REQUEST;
        w.server.spoil_exchange = at;
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        for (int i = 0; i < 4 && report.outcome != DUNLIN_OUTCOME_ACCEPTED; i++) {
            report = (dunlin_round_report)DUNLIN_ROUND_REPORT_INIT;
            const dunlin_status status = dunlin_client_run_round(w.client, &report);
            cr_assert(status == DUNLIN_OK || status == DUNLIN_CLOSED, "%s",
                      dunlin_status_name(status));
            w.server.now_ms += 5000;
        }
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "cut at exchange %d", at);
        expect_weights();
        w.server.spoil = FAKE_FINE;
        w.server.now_ms += 5000;
        w.server.round++;
    }
}

INT8_TEST(weights_that_are_no_int8_are_refused_by_name)
{
    want_int8();
    w.learner.step = 0.3F; /* a learner that trained in float32 all the same */
    (void)run(DUNLIN_NUMERIC, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text,
                              "\"weights\" is no int8 with one exponent"));
    cr_expect_eq(w.server.n_contributions, 0);
}

INT8_TEST(a_running_statistic_has_no_int8)
{
    want_int8();
    w.server.has_no_statistic = false;
    fake_server_remake_base(&w.server);
    (void)run(DUNLIN_UNSUPPORTED, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(
        strstr(dunlin_client_last_error(w.client)->text, "tensor mean is a running statistic"));
}

INT8_TEST(int8_without_a_precision_is_refused)
{
    want_int8();
    memset(w.server.plan.precision, 0, sizeof w.server.plan.precision);
    w.server.plan.grad_bits = 0;
    w.server.plan.learning_rate = 0.1F;
    (void)run(DUNLIN_UNSUPPORTED, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(
        strstr(dunlin_client_last_error(w.client)->text, "INT8_SCALE without a precision"));
}

/* A learner that has no such precision says so, and the round ends with its words. */
INT8_TEST(a_precision_that_the_learner_has_not_ends_the_round)
{
    want_int8();
    (void)strcpy(w.server.plan.precision, "octo");
    w.learner.load_status = DUNLIN_UNSUPPORTED;
    (void)run(DUNLIN_UNSUPPORTED, DUNLIN_OUTCOME_NONE);
    cr_expect_eq(w.server.n_contributions, 0);
}

INT8_TEST(an_app_that_sends_float32_alone_says_so)
{
    w.options.sends_plain = true;
    fake_world_close(&w);
    fake_world_open(&w);
    want_int8();
    (void)run(DUNLIN_UNSUPPORTED, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(strstr(dunlin_client_last_error(w.client)->text, "float32 alone"));
    cr_expect_eq(w.server.n_contributions, 0);
}

INT8_TEST(an_update_of_int8_has_a_limit_too)
{
    w.options.max_upload_bytes = UPDATE_BYTES - 1;
    fake_world_close(&w);
    fake_world_open(&w);
    want_int8();
    w.server.upload_bytes = 20000; /* the offer says less than it becomes */
    (void)run(DUNLIN_LIMIT, DUNLIN_OUTCOME_NONE);
    cr_expect_not_null(
        strstr(dunlin_client_last_error(w.client)->text, "the update of int8 has 70027 bytes"));
}
