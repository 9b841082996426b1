/*
 * groups.c - which parameters dunlin-train trains and in which groups: --trained, --decay-norms,
 * --groups.
 */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_FORM "[NAME=]PATTERN,...|@ROLE,...[:lr=xF][:decay=xF];..."

/* The role of a name, or UNUSED, which no group is made for. */
static dunlin_parameter_use find_use(const char *name)
{
    for (int i = DUNLIN_USE_UNUSED + 1; i < DUNLIN_N_USES; i++) {
        if (strcmp(dunlin_parameter_use_name((dunlin_parameter_use)i), name) == 0) {
            return (dunlin_parameter_use)i;
        }
    }
    return DUNLIN_USE_UNUSED;
}

/* Roles become members of the set; patterns move together at the front of the text. */
static int take_members(dunlin_parameter_group *group, char *text)
{
    char *out = text;
    char *rest = NULL;
    bool has_patterns = false;
    for (char *piece = strtok_r(text, ",", &rest); piece != NULL;
         piece = strtok_r(NULL, ",", &rest)) {
        if (piece[0] == '@') {
            const dunlin_parameter_use use = find_use(piece + 1);
            if (use == DUNLIN_USE_UNUSED) {
                return program_misuse(&train_program,
                                      "--groups: %s is no role; expected @weight, @bias, "
                                      "@norm_scale, @norm_shift, @table, @position or @factor",
                                      piece);
            }
            group->uses |= DUNLIN_USE_BIT(use);
            continue;
        }
        if (has_patterns) {
            *out++ = ',';
        }
        const size_t n = strlen(piece);
        memmove(out, piece, n + 1);
        group->patterns = text;
        out += n;
        has_patterns = true;
    }
    if (!has_patterns && group->uses == 0) {
        return program_misuse(&train_program, "--groups: a group has no pattern and no role");
    }
    return EXIT_OK;
}

/* "lr=x0.1", "decay=x0". */
static int take_factor(dunlin_parameter_group *group, const char *text)
{
    const bool is_rate = strncmp(text, "lr=x", 4) == 0;
    const bool is_decay = strncmp(text, "decay=x", 7) == 0;
    char *end = NULL;
    const double factor = is_rate || is_decay ? strtod(strchr(text, 'x') + 1, &end) : -1.0;
    if (!(factor >= 0.0 && factor <= 1e6) || *end != '\0' || end[-1] == 'x') {
        return program_misuse(&train_program,
                              "--groups: %s: expected lr=xF or decay=xF, F from 0 to 1e6: so many "
                              "times --lr or --weight-decay",
                              text);
    }
    *(is_rate ? &group->lr_factor : &group->decay_factor) = (float)factor;
    return EXIT_OK;
}

static int take_group(train_flags *flags, char *text)
{
    if (flags->n_groups == TRAIN_MAX_GROUPS) {
        return program_misuse(&train_program, "--groups: more than %d", TRAIN_MAX_GROUPS);
    }
    dunlin_parameter_group *group = &flags->groups[flags->n_groups];
    *group = (dunlin_parameter_group)DUNLIN_PARAMETER_GROUP_INIT;
    char *factors = strchr(text, ':');
    if (factors != NULL) {
        *factors++ = '\0';
    }
    char *members = strchr(text, '=');
    if (members != NULL) {
        *members++ = '\0';
        group->name = text;
    } else {
        members = text;
    }
    int status = take_members(group, members);
    char *rest = NULL;
    char *piece = factors != NULL ? strtok_r(factors, ":", &rest) : NULL;
    for (; status == EXIT_OK && piece != NULL; piece = strtok_r(NULL, ":", &rest)) {
        status = take_factor(group, piece);
    }
    flags->n_groups++;
    return status;
}

static int take_groups(train_flags *flags)
{
    if (flags->groups_given == NULL) {
        return EXIT_OK;
    }
    const int n =
        snprintf(flags->groups_text, sizeof flags->groups_text, "%s", flags->groups_given);
    if (n <= 0 || (size_t)n >= sizeof flags->groups_text) {
        return program_misuse(&train_program, "--groups: expected " GROUPS_FORM ", up to %d bytes",
                              TRAIN_GROUPS_BYTES - 1);
    }
    int status = EXIT_OK;
    char *rest = NULL;
    char *piece = strtok_r(flags->groups_text, ";", &rest);
    for (; status == EXIT_OK && piece != NULL; piece = strtok_r(NULL, ";", &rest)) {
        status = take_group(flags, piece);
    }
    return status;
}

int train_check_groups(train_flags *flags)
{
    if (strcmp(flags->decay_norms, "yes") != 0 && strcmp(flags->decay_norms, "no") != 0) {
        return program_misuse(&train_program, "--decay-norms %s: expected yes or no",
                              flags->decay_norms);
    }
    return take_groups(flags);
}

void train_choose_parameters(const train_flags *flags, dunlin_trainer_options *options)
{
    options->frozen_prefixes = flags->frozen;
    if (flags->trained != NULL && strcmp(flags->trained, "head") == 0) {
        options->trained = DUNLIN_TRAINED_HEAD;
    } else if (flags->trained != NULL && strcmp(flags->trained, "biases") == 0) {
        options->trained = DUNLIN_TRAINED_BIASES_AND_NORMS;
    } else {
        options->trained_prefixes = flags->trained;
    }
    options->no_norm_decay = strcmp(flags->decay_norms, "no") == 0;
    options->groups = flags->groups;
    options->n_groups = flags->n_groups;
}
