/*
 * groups.c - --groups: parameters with a rate and a weight decay of their own.
 */
#include "groups.h"

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
static int take_members(const program_info *program, dunlin_parameter_group *group, char *text)
{
    char *out = text;
    char *rest = NULL;
    bool has_patterns = false;
    for (char *piece = strtok_r(text, ",", &rest); piece != NULL;
         piece = strtok_r(NULL, ",", &rest)) {
        if (piece[0] == '@') {
            const dunlin_parameter_use use = find_use(piece + 1);
            if (use == DUNLIN_USE_UNUSED) {
                return program_misuse(program,
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
        return program_misuse(program, "--groups: a group has no pattern and no role");
    }
    return EXIT_OK;
}

/* "lr=x0.1", "decay=x0". */
static int take_factor(const program_info *program, dunlin_parameter_group *group, const char *text)
{
    const bool is_rate = strncmp(text, "lr=x", 4) == 0;
    const bool is_decay = strncmp(text, "decay=x", 7) == 0;
    char *end = NULL;
    const double factor = is_rate || is_decay ? strtod(strchr(text, 'x') + 1, &end) : -1.0;
    if (!(factor >= 0.0 && factor <= 1e6) || *end != '\0' || end[-1] == 'x') {
        return program_misuse(program,
                              "--groups: %s: expected lr=xF or decay=xF, F from 0 to 1e6: so many "
                              "times --lr or --weight-decay",
                              text);
    }
    *(is_rate ? &group->lr_factor : &group->decay_factor) = (float)factor;
    return EXIT_OK;
}

static int take_group(const program_info *program, char *text, dunlin_parameter_group *group)
{
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
    int status = take_members(program, group, members);
    char *rest = NULL;
    char *piece = factors != NULL ? strtok_r(factors, ":", &rest) : NULL;
    for (; status == EXIT_OK && piece != NULL; piece = strtok_r(NULL, ":", &rest)) {
        status = take_factor(program, group, piece);
    }
    return status;
}

int groups_parse(const program_info *program, const char *given, group_list *out)
{
    out->n = 0;
    if (given == NULL) {
        return EXIT_OK;
    }
    const int n = snprintf(out->text, sizeof out->text, "%s", given);
    if (n <= 0 || (size_t)n >= sizeof out->text) {
        return program_misuse(program, "--groups: expected " GROUPS_FORM ", up to %d bytes",
                              GROUPS_TEXT_BYTES - 1);
    }
    int status = EXIT_OK;
    char *rest = NULL;
    char *piece = strtok_r(out->text, ";", &rest);
    for (; status == EXIT_OK && piece != NULL; piece = strtok_r(NULL, ";", &rest)) {
        if (out->n == GROUPS_MOST) {
            return program_misuse(program, "--groups: more than %d", GROUPS_MOST);
        }
        status = take_group(program, piece, &out->groups[out->n]);
        out->n++;
    }
    return status;
}
