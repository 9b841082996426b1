/*
 * groups.h - --groups: parameters with a rate and a weight decay of their own, by patterns of names
 * and by roles.
 */
#ifndef SAMPLES_COMMON_GROUPS_H
#define SAMPLES_COMMON_GROUPS_H

#include <dunlin/parameters.h>

#include <common/args.h>

#define GROUPS_MOST 16
#define GROUPS_TEXT_BYTES 1024

/* Must not move: the groups point into the text. */
typedef struct group_list {
    char text[GROUPS_TEXT_BYTES];
    dunlin_parameter_group groups[GROUPS_MOST];
    int32_t n;
} group_list;

/* "[NAME=]PATTERN,...|@ROLE,...[:lr=xF][:decay=xF];..."; NULL: none. Reported as misuse of the
 * program. */
int groups_parse(const program_info *program, const char *given, group_list *out);

#endif
