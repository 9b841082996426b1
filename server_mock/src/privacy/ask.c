/*
 * ask.c - a question of privacy as a text, and its answer as JSON.
 *
 * Invariant: each key is a row of a table, and is read to its last character or refused.
 */
#include "ask.h"

#include "base/question.h"
#include "terms.h"

#include <mem/support.h>

#include <jansson.h>
#include <stddef.h>
#include <string.h>

static const char *const accountants[] = {"", "rdp", "pld"};

/* One number of the question. */
typedef struct number_key {
    const char *key;
    size_t offset;
    bool is_whole;
} number_key;

#define AT(member) offsetof(dunlin__privacy_question, member)

static const number_key number_keys[] = {
    {"noise", AT(noise), false},          {"epsilon", AT(epsilon), false},
    {"delta", AT(delta), false},          {"clip", AT(clip), false},
    {"rounds", AT(n_rounds), true},       {"most", AT(most_rounds), true},
    {"separation", AT(separation), true}, {"population", AT(population), true},
    {"parts", AT(n_parts), true},         {"part_scale", AT(part_scale), true},
    {"values", AT(n_values), true},
};

/* "poisson:0.01", "fixed:100/10000", or a name alone; cuts the text up. */
static bool take_sampling(char *value, dunlin__privacy_question *question)
{
    char *rest = strchr(value, ':');
    if (rest != NULL) {
        *rest++ = 0;
    }
    if (strcmp(value, "poisson") == 0) {
        question->sampling = DUNLIN_SAMPLING_POISSON;
        return rest != NULL && dunlin__question_real(rest, &question->rate);
    }
    if (strcmp(value, "fixed") == 0) {
        char *slash = rest != NULL ? strchr(rest, '/') : NULL;
        question->sampling = DUNLIN_SAMPLING_FIXED;
        if (slash == NULL) {
            return false;
        }
        *slash = 0;
        return dunlin__question_whole(rest, &question->cohort) &&
               dunlin__question_whole(slash + 1, &question->population);
    }
    question->sampling =
        strcmp(value, "tree") == 0 ? DUNLIN_SAMPLING_TREE : DUNLIN_SAMPLING_FIRST_COME;
    return rest == NULL && (strcmp(value, "tree") == 0 || strcmp(value, "first_come") == 0);
}

static bool take_word(const char *key, char *value, dunlin__privacy_question *question)
{
    if (strcmp(key, "sampling") == 0) {
        return take_sampling(value, question);
    }
    if (strcmp(key, "accountant") == 0) {
        const bool is_rdp = strcmp(value, "rdp") == 0;
        question->accountant = is_rdp ? DUNLIN_ACCOUNTANT_RDP : DUNLIN_ACCOUNTANT_PLD;
        return is_rdp || strcmp(value, "pld") == 0;
    }
    question->is_skellam = strcmp(value, "skellam") == 0;
    question->is_discrete = question->is_skellam || strcmp(value, "discrete") == 0;
    return strcmp(key, "kind") == 0 && (question->is_discrete || strcmp(value, "gaussian") == 0);
}

static bool take_part(void *ctx, const char *key, char *value)
{
    dunlin__privacy_question *question = ctx;
    for (size_t i = 0; i < sizeof number_keys / sizeof number_keys[0]; i++) {
        if (strcmp(key, number_keys[i].key) == 0) {
            char *place = (char *)question + number_keys[i].offset;
            double number = 0;
            uint64_t whole = 0;
            const bool is_read = number_keys[i].is_whole ? dunlin__question_whole(value, &whole)
                                                         : dunlin__question_real(value, &number);
            memcpy(place, number_keys[i].is_whole ? (const void *)&whole : (const void *)&number,
                   sizeof(uint64_t));
            return is_read;
        }
    }
    return take_word(key, value, question);
}

dunlin_status dunlin__privacy_read(const char *text, dunlin__privacy_question *out_question,
                                   dunlin_error *error)
{
    *out_question = dunlin__privacy_ask();
    const char *part = dunlin__question_read(text, take_part, out_question);
    return part == NULL ? DUNLIN_OK
                        : dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                                       "'%.*s' is no part of a question of privacy: sampling=..., "
                                       "noise=F or epsilon=F, delta=F, clip=F, rounds=N, most=N, "
                                       "separation=N, population=N, accountant=..., kind=... and "
                                       "more (PRIVACY.md)",
                                       dunlin__question_shown(part), part);
}

char *dunlin__privacy_tell(const dunlin__privacy_question *question,
                           const dunlin__privacy_answer *answer)
{
    const bool is_fixed = question->sampling == DUNLIN_SAMPLING_FIXED;
    json_t *order = answer->order > 0 ? json_real(answer->order) : json_null();
    json_t *least = answer->least > 0 ? json_real(answer->least) : json_null();
    json_t *share = is_fixed ? json_real((double)question->cohort / (double)question->population)
                    : question->sampling == DUNLIN_SAMPLING_POISSON ? json_real(question->rate)
                                                                    : json_null();
    json_t *object = json_pack(
        "{s:f, s:o, s:f, s:f, s:f, s:f, s:I, s:s, s:o, s:s, s:o, s:b, s:f, s:s, s:s, s:s, s:s, "
        "s:s}",
        "epsilon", answer->epsilon, "epsilon_at_least", least, "delta", question->delta, "noise",
        answer->noise, "clip", question->clip, "deviation", answer->deviation, "rounds",
        (json_int_t)question->n_rounds, "sampling", dunlin__sampling_name(question->sampling),
        "rate", share, "accountant", accountants[answer->accountant], "order", order, "amplified",
        answer->is_amplified, "sensitivity", answer->sensitivity, "kind",
        dunlin__privacy_kind(question), "unit", "device", "neighbours",
        dunlin__privacy_neighbours(question), "assumes", dunlin__privacy_assumes(question),
        "noise_by", question->n_parts > 0 ? "distributed" : "server");
    char *text =
        object != NULL ? json_dumps(object, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(object);
    return text;
}
