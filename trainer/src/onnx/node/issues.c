/*
 * issues.c - the reasons why a file cannot be trained: gathered while it is read, reported in
 * groups.
 *
 * Invariant: issues of one operator that differ only in names and numbers are one group, which
 * counts its nodes and shows the first; groups keep the order in which they came up.
 */
#include "import.h"

#include <mem/support.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_GROUPS 1000

/* What helps against an issue whose operator, attribute and reason hold these texts. */
typedef struct way_out {
    const char *op, *attribute, *reason, *way;
} way_out;

static const way_out ways[] = {
    {"model", "opset_import", "too old",
     "export again with opset 9 or later, or raise the file's by onnx.version_converter"},
    {"model", "opset_import", "too new", "export again with opset 21 or earlier"},
    {"model", "functions", "", "inline them, by onnx.inliner or in the exporter"},
    {"model", "sparse_initializer", "", "export dense tensors"},
    {"model", "output", "outputs",
     "name those to train (dunlin_model_sizes.outputs, --outputs), or export the logits alone"},
    {"model", "input", "dynamic",
     "give it where the file is opened (dunlin_model_sizes; dunlin-train --image, --length), or "
     "export with fixed sizes"},
    {"If", "", "control flow", "export with the branch folded, so that no If is left"},
    {"Loop", "", "control flow", "export with the loop unrolled"},
    {"Scan", "", "control flow", "export with the loop unrolled"},
    {"", "", "its domain", "export without the optimisations of a runtime"},
    {"", "", "is not float32", "export in float32"},
    {"", "", "is part of what may be a weight",
     "list what is trained in the file's metadata, " DUNLIN_ONNX_TRAINED_KEY},
    {"", "", "as single numbers", "store it by onnx.numpy_helper.from_array, as raw data"},
    {"", "", "below opset 21", "export again with opset 21"},
};

static const char *way_out_of(const dunlin_model_issue *issue)
{
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if ((ways[i].op[0] == '\0' || strcmp(ways[i].op, issue->op) == 0) &&
            (ways[i].attribute[0] == '\0' || strcmp(ways[i].attribute, issue->attribute) == 0) &&
            strstr(issue->reason, ways[i].reason) != NULL) {
            return ways[i].way;
        }
    }
    return "";
}

/* The next character that counts: what is in quotes and digits are names and numbers. */
static char next_word(const char **text)
{
    const char *c = *text;
    while (isdigit((unsigned char)*c) || *c == '\'') {
        const char *end = *c == '\'' ? strchr(c + 1, '\'') : NULL;
        c = end != NULL ? end + 1 : c + 1;
    }
    *text = *c != '\0' ? c + 1 : c;
    return *c;
}

static bool is_same_reason(const char *a, const char *b)
{
    char of_a = ' ';
    while (of_a != '\0') {
        of_a = next_word(&a);
        if (of_a != next_word(&b)) {
            return false;
        }
    }
    return true;
}

static dunlin_onnx_group *find_group(const dunlin_onnx_import *import,
                                     const dunlin_model_issue *issue)
{
    for (size_t i = 0; i < import->n_groups; i++) {
        dunlin_onnx_group *group = &import->groups[i];
        if (strcmp(group->op, issue->op) == 0 && strcmp(group->attribute, issue->attribute) == 0 &&
            is_same_reason(group->reason, issue->reason)) {
            return group;
        }
    }
    return NULL;
}

static void note_first(dunlin_onnx_import *import, const dunlin_model_issue *issue)
{
    const bool has_node = issue->node[0] != '\0';
    const char *way = way_out_of(issue);
    /* A text that is too long is cut. */
    const int n =
        snprintf(import->first_issue, sizeof import->first_issue, "%.40s%s%.60s%s%s%.20s: %s%s%s",
                 issue->op, has_node ? " '" : "", issue->node, has_node ? "'" : "",
                 issue->attribute[0] != '\0' ? ", " : "", issue->attribute, issue->reason,
                 way[0] != '\0' ? "; " : "", way);
    if (n < 0) {
        import->first_issue[0] = '\0';
    }
}

void dunlin__onnx_report(dunlin_onnx_import *import, const dunlin_model_issue *issue)
{
    if (import->n_groups == 0) {
        note_first(import, issue);
    }
    dunlin_onnx_group *group = find_group(import, issue);
    if (group != NULL) {
        group->n_nodes++;
        return;
    }
    if (import->n_groups >= MAX_GROUPS) {
        return; /* a list that long tells nothing more */
    }
    void *memory = import->groups;
    if (!dunlin__grow_array(&import->file->alloc, &memory, &import->groups_capacity,
                            import->n_groups + 1, sizeof *import->groups)) {
        import->has_lost_issue = true;
        return;
    }
    import->groups = memory;
    group = &import->groups[import->n_groups++];
    *group = (dunlin_onnx_group){
        .node = issue->node, .op = issue->op, .attribute = issue->attribute, .n_nodes = 1};
    (void)snprintf(group->reason, sizeof group->reason, "%s", issue->reason);
}

void dunlin__onnx_tell_issues(dunlin_onnx_import *import)
{
    import->n_issues = (int32_t)import->n_groups;
    for (size_t i = 0; i < import->n_groups && import->issue_fn != NULL; i++) {
        const dunlin_onnx_group *group = &import->groups[i];
        dunlin_model_issue issue = {.node = group->node,
                                    .op = group->op,
                                    .attribute = group->attribute,
                                    .reason = group->reason,
                                    .n_nodes = group->n_nodes};
        issue.way_out = way_out_of(&issue);
        import->issue_fn(import->issue_ctx, &issue);
    }
}
