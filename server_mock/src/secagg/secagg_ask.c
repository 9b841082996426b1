/*
 * secagg_ask.c - tables of neighbours and thresholds for stated corruption, drop-out and errors.
 *
 * Invariant: each key is read to its last character or refused.
 */
#include "secagg_ask.h"

#include "base/question.h"

#include <mem/support.h>
#include <wire/secagg.h>
#include <wire/secagg_odds.h>

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MOST 16u

typedef struct secagg_question {
    dunlin__secagg_wish wish;
    uint32_t n_rows;
    uint32_t devices[ROWS_MOST];
    uint32_t neighbours; /* 0: the fewest that do */
    uint32_t threshold;
} secagg_question;

typedef struct real_key {
    const char *key;
    size_t offset;
} real_key;

static const real_key real_keys[] = {
    {"corrupt", offsetof(dunlin__secagg_wish, corrupt)},
    {"dropout", offsetof(dunlin__secagg_wish, dropout)},
    {"security", offsetof(dunlin__secagg_wish, security_bits)},
    {"failure", offsetof(dunlin__secagg_wish, failure_bits)},
};

static bool starts_number(const char *text)
{
    return (text[0] >= '0' && text[0] <= '9') || text[0] == '.';
}

/* Up to ROWS_MOST numbers with colons between. */
static bool take_devices(const char *text, secagg_question *question)
{
    question->n_rows = 0;
    while (starts_number(text) && question->n_rows < ROWS_MOST) {
        char *end = NULL;
        const unsigned long n = strtoul(text, &end, 10);
        if (n > DUNLIN_WIRE_SECAGG_COHORT * 16ul || (*end != ':' && *end != 0)) {
            return false;
        }
        question->devices[question->n_rows++] = (uint32_t)n;
        if (*end == 0) {
            return true;
        }
        text = end + 1;
    }
    return false;
}

static bool take_count(const char *text, uint32_t *out_value)
{
    uint64_t n = 0;
    const bool is_read = dunlin__question_whole(text, &n);
    *out_value = (uint32_t)n;
    return is_read && n >= 1 && n <= DUNLIN_WIRE_SECAGG_COHORT;
}

static bool take_key(void *ctx, const char *key, char *value)
{
    secagg_question *question = ctx;
    for (size_t i = 0; i < sizeof(real_keys) / sizeof(real_keys[0]); i++) {
        if (strcmp(key, real_keys[i].key) == 0) {
            double number = 0.0;
            const bool is_read = dunlin__question_real(value, &number);
            memcpy((char *)&question->wish + real_keys[i].offset, &number, sizeof(number));
            return is_read;
        }
    }
    if (strcmp(key, "devices") == 0) {
        return take_devices(value, question);
    }
    if (strcmp(key, "neighbours") == 0) {
        return take_count(value, &question->neighbours);
    }
    return strcmp(key, "threshold") == 0 && take_count(value, &question->threshold);
}

static dunlin_status read_question(const char *text, secagg_question *question, dunlin_error *error)
{
    *question = (secagg_question){.wish = {0, 0.1, 0.1, 40.0, 20.0}};
    const char *part = dunlin__question_read(text, take_key, question);
    if (part != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "'%.*s' is no part of a question of secure aggregation: "
                            "devices=N:N..., corrupt=F, dropout=F, security=BITS, "
                            "failure=BITS, neighbours=N, threshold=N",
                            dunlin__question_shown(part), part);
    }
    if (question->n_rows == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "a question of secure aggregation needs devices=N, up to %u of them",
                            ROWS_MOST);
    }
    if ((question->neighbours == 0) != (question->threshold == 0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "neighbours=%u and threshold=%u must come together",
                            question->neighbours, question->threshold);
    }
    return DUNLIN_OK;
}

/* Whether terms with these numbers could be at all. */
static dunlin_status check_given(const secagg_question *question, uint32_t n_devices,
                                 dunlin_error *error)
{
    dunlin__secagg_plan plan = {.version = 1,
                                .n_cohort = n_devices,
                                .n_neighbours = question->neighbours,
                                .threshold = question->threshold,
                                .least_devices = 2,
                                .ring_bits = 32,
                                .n_values = 1,
                                .clip = 1.0f,
                                .value_limit = 1,
                                .weight_limit = 1};
    plan.session.size = sizeof(plan.session.bytes);
    return dunlin__secagg_check(&plan, error);
}

static json_t *tell_chance(double log2_chance)
{
    return isinf(log2_chance) ? json_null() : json_real(log2_chance);
}

static dunlin_status add_row(const secagg_question *question, uint32_t n_devices, json_t *rows,
                             dunlin_error *error)
{
    dunlin__secagg_wish wish = question->wish;
    wish.n_devices = n_devices;
    dunlin__secagg_setup setup = {.n_neighbours = question->neighbours,
                                  .least_threshold = question->threshold,
                                  .most_threshold = question->threshold,
                                  .threshold = question->threshold};
    dunlin_status status = DUNLIN_OK;
    if (question->neighbours == 0) {
        status = dunlin__secagg_choose(&wish, DUNLIN_SECAGG_NEIGHBOURS, &setup, error);
    } else {
        DUNLIN_TRY(check_given(question, n_devices, error));
        status = dunlin__secagg_judge(&wish, setup.n_neighbours, setup.threshold, error);
    }
    if (status != DUNLIN_OK && status != DUNLIN_REJECTED) {
        return status;
    }
    json_t *row =
        json_pack("{s:I, s:b}", "devices", (json_int_t)n_devices, "holds", status == DUNLIN_OK);
    if (setup.n_neighbours == 0) {
        (void)json_object_set_new(row, "neighbours", json_null());
    } else {
        const dunlin__secagg_odds odds =
            dunlin__secagg_odds_of(&wish, setup.n_neighbours, setup.threshold);
        (void)json_object_update_new(
            row, json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "neighbours",
                           (json_int_t)setup.n_neighbours, "threshold", (json_int_t)setup.threshold,
                           "threshold_least", (json_int_t)setup.least_threshold, "threshold_most",
                           (json_int_t)setup.most_threshold, "corrupt_log2",
                           tell_chance(odds.hidden), "cut_log2", tell_chance(odds.connected),
                           "no_sum_log2", tell_chance(odds.finished)));
    }
    return json_array_append_new(rows, row) == 0
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0, "no memory for the answer");
}

dunlin_status dunlin__secagg_answer(const char *question, char **out_text, dunlin_error *error)
{
    secagg_question asked;
    *out_text = NULL;
    DUNLIN_TRY(read_question(question, &asked, error));
    json_t *rows = json_array();
    dunlin_status status = DUNLIN_OK;
    for (uint32_t i = 0; i < asked.n_rows && status == DUNLIN_OK; i++) {
        status = add_row(&asked, asked.devices[i], rows, error);
    }
    if (status != DUNLIN_OK) {
        json_decref(rows);
        return status;
    }
    dunlin__error_clear(error);
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:f, s:s, s:s, s:o}", "corrupt", asked.wish.corrupt, "dropout",
                  asked.wish.dropout, "security_bits", asked.wish.security_bits, "failure_bits",
                  asked.wish.failure_bits, "server", "honest but curious", "assumes",
                  "corrupt devices and those that drop out are chosen without a look at who is "
                  "whose neighbour",
                  "setups", rows);
    *out_text =
        object != NULL ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(object);
    return *out_text != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "secagg", 0, "no memory for the answer");
}
