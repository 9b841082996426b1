/*
 * lists.c - what a study goes over: models, budgets, policies, batches, those of the command line
 * or its own.
 */
#include "study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BATCH 65536 /* of a step that is a budget */

bool study_next_piece(const char **at, char out_piece[STUDY_PIECE_BYTES])
{
    const char *begin = *at;
    if (begin == NULL || *begin == '\0') {
        return false;
    }
    const size_t length = strcspn(begin, ",");
    *at = begin + length + (begin[length] == ',' ? 1 : 0);
    (void)snprintf(out_piece, STUDY_PIECE_BYTES, "%.*s", (int)length, begin);
    return true;
}

bool study_parse_budget(const char *text, study_budget *out_budget)
{
    char *end = NULL;
    *out_budget = (study_budget){.share = 0.0};
    (void)snprintf(out_budget->text, sizeof out_budget->text, "%s", text);
    const double percent = strtod(text, &end);
    if (end != text && strcmp(end, "%") == 0) {
        out_budget->share = percent / 100.0;
        return percent > 0.0 && percent <= 1000.0;
    }
    if (strncmp(text, "none:", 5) == 0) {
        out_budget->batch = strtoll(text + 5, &end, 10);
        return text[5] >= '0' && text[5] <= '9' && *end == '\0' && out_budget->batch >= 1 &&
               out_budget->batch <= MOST_BATCH && strlen(text) < sizeof out_budget->text;
    }
    return size_parse(text, &out_budget->bytes) && out_budget->bytes > 0;
}

/* A name of the zoo that is valid as long as the program runs. */
static const char *zoo_name(const char *text)
{
    int32_t i = 0;
    while (dunlin_zoo_name(i) != NULL && strcmp(dunlin_zoo_name(i), text) != 0) {
        i++;
    }
    return dunlin_zoo_name(i);
}

int32_t study_models(const study *at, const char *own, const char *out[STUDY_MAX_LIST])
{
    const study_flags *flags = study_flags_of(at);
    int32_t n = flags->n_models;
    memcpy(out, flags->model_list, (size_t)n * sizeof out[0]);
    for (char piece[STUDY_PIECE_BYTES]; flags->n_models == 0 && study_next_piece(&own, piece);) {
        if (study_data_fits(flags, piece)) {
            out[n++] = zoo_name(piece);
        }
    }
    if (n == 0) {
        out[n++] = study_data_model(flags);
    }
    return n;
}

int32_t study_budgets(const study *at, const char *own, study_budget out[STUDY_MAX_LIST])
{
    const study_flags *flags = study_flags_of(at);
    int32_t n = flags->n_budgets;
    memcpy(out, flags->budget_list, (size_t)n * sizeof out[0]);
    for (char piece[STUDY_PIECE_BYTES]; flags->n_budgets == 0 && study_next_piece(&own, piece);) {
        (void)study_parse_budget(piece, &out[n++]);
    }
    return n;
}

int32_t study_policies(const study *at, const char *own, dunlin_policy out[STUDY_MAX_LIST])
{
    const study_flags *flags = study_flags_of(at);
    int32_t n = flags->n_policies;
    memcpy(out, flags->policy_list, (size_t)n * sizeof out[0]);
    for (char piece[STUDY_PIECE_BYTES]; flags->n_policies == 0 && study_next_piece(&own, piece);) {
        (void)policy_parse(piece, &out[n++]);
    }
    return n;
}

int32_t study_batches(const study *at, const char *own, int64_t out[STUDY_MAX_LIST])
{
    const study_flags *flags = study_flags_of(at);
    int32_t n = flags->n_batches;
    memcpy(out, flags->batch_list, (size_t)n * sizeof out[0]);
    for (char piece[STUDY_PIECE_BYTES]; flags->n_batches == 0 && study_next_piece(&own, piece);) {
        out[n++] = strtoll(piece, NULL, 10);
    }
    return n;
}
