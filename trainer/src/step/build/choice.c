/*
 * choice.c - finds which parameters the options leave to be trained, in which group, with which
 * factors.
 */
#include "choice.h"

#include "net/uses.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define BIASES_AND_NORMS                                                                           \
    (DUNLIN_USE_BIT(DUNLIN_USE_BIAS) | DUNLIN_USE_BIT(DUNLIN_USE_NORM_SCALE) |                     \
     DUNLIN_USE_BIT(DUNLIN_USE_NORM_SHIFT))

/* Does a prefix of the comma-separated list begin the name? */
static bool matches_prefix(const char *prefixes, const char *name)
{
    const char *at = prefixes;
    while (at != NULL && *at != '\0') {
        const size_t length = strcspn(at, ",");
        if (length > 0 && strncmp(at, name, length) == 0) {
            return true;
        }
        at += length;
        at += *at == ',' ? 1 : 0;
    }
    return false;
}

/* Each prefix must mean something: a slip of the pen must not train what was to stay fixed. */
static dunlin_status check_prefixes(const dunlin_net *net, const char *prefixes, const char *kind,
                                    dunlin_error *error)
{
    const char *at = prefixes;
    while (at != NULL && *at != '\0') {
        const size_t length = strcspn(at, ",");
        bool is_used = length == 0;
        for (size_t i = 0; i < net->n_params && !is_used; i++) {
            is_used = strncmp(at, net->params[i].name, length) == 0;
        }
        if (!is_used) {
            const int shown = length < 80 ? (int)length : 80;
            return dunlin__fail(error, DUNLIN_ARGUMENT, "step", 0,
                                "%s prefix \"%.*s\" begins no parameter's name", kind, shown, at);
        }
        at += length;
        at += *at == ',' ? 1 : 0;
    }
    return DUNLIN_OK;
}

/* Does the pattern of `length` characters match the whole name? After a *, the latest one, longer
 * matches are tried. */
static bool matches_pattern(const char *pattern, size_t length, const char *name)
{
    size_t at = 0;
    size_t star = SIZE_MAX; /* after the latest * */
    const char *tried = name;
    while (*name != '\0') {
        if (at < length && pattern[at] == '*') {
            at++;
            star = at;
            tried = name;
        } else if (at < length && (pattern[at] == '?' || pattern[at] == *name)) {
            at++;
            name++;
        } else if (star != SIZE_MAX) {
            at = star;
            tried++;
            name = tried;
        } else {
            return false;
        }
    }
    while (at < length && pattern[at] == '*') {
        at++;
    }
    return at == length;
}

static bool matches_patterns(const char *patterns, const char *name)
{
    const char *at = patterns;
    while (*at != '\0') {
        const size_t length = strcspn(at, ",");
        if (length > 0 && matches_pattern(at, length, name)) {
            return true;
        }
        at += length;
        at += *at == ',' ? 1 : 0;
    }
    return false;
}

dunlin_parameter_group dunlin__choice_group(const dunlin_parameter_group *groups, int32_t index)
{
    dunlin_parameter_group group = DUNLIN_PARAMETER_GROUP_INIT;
    const size_t bytes = groups->struct_size;
    const unsigned char *at = (const unsigned char *)groups + (size_t)index * bytes;
    memcpy(&group, at, bytes < sizeof group ? bytes : sizeof group);
    return group;
}

const char *dunlin__choice_group_name(const dunlin_parameter_group *group, int32_t index,
                                      char buffer[DUNLIN_GROUP_NAME_BYTES])
{
    if (group->name != NULL) {
        return group->name;
    }
    (void)snprintf(buffer, DUNLIN_GROUP_NAME_BYTES, "group %" PRId32, index + 1);
    return buffer;
}

void dunlin__choice_options(const dunlin_trainer_options *from, dunlin_step_build_options *out)
{
    out->frozen_prefixes = from->frozen_prefixes;
    out->trained_prefixes = from->trained_prefixes;
    out->trained = from->trained;
    out->no_norm_decay = from->no_norm_decay;
    out->groups = from->groups;
    out->n_groups = from->n_groups;
}

static dunlin_status check_group(const dunlin_parameter_group *group, int32_t index,
                                 size_t first_bytes, dunlin_error *error)
{
    char buffer[DUNLIN_GROUP_NAME_BYTES];
    if (group->struct_size != first_bytes) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option groups: group %" PRId32
                            " does not begin with the struct_size of the first",
                            index + 1);
    }
    const char *name = dunlin__choice_group_name(group, index, buffer);
    if ((group->uses >> DUNLIN_N_USES) != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option groups: uses of \"%.60s\" is 0x%" PRIx32
                            "; it must be a set of dunlin_parameter_use",
                            name, group->uses);
    }
    if (!(group->lr_factor >= 0.0F && isfinite(group->lr_factor))) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option groups: lr_factor of \"%.60s\" is %g; it must be finite and "
                            "not negative",
                            name, (double)group->lr_factor);
    }
    if (!(group->decay_factor >= 0.0F && isfinite(group->decay_factor))) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option groups: decay_factor of \"%.60s\" is %g; it must be finite "
                            "and not negative",
                            name, (double)group->decay_factor);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__choice_check_options(const dunlin_trainer_options *options,
                                           dunlin_error *error)
{
    if (options->trained < DUNLIN_TRAINED_ALL ||
        options->trained > DUNLIN_TRAINED_BIASES_AND_NORMS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option trained is %d; it must be one of dunlin_trained",
                            (int)options->trained);
    }
    if (options->n_groups < 0 || options->n_groups > DUNLIN_MAX_GROUPS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option n_groups is %" PRId32 "; it must be 0 to %d", options->n_groups,
                            DUNLIN_MAX_GROUPS);
    }
    if (options->n_groups == 0) {
        return DUNLIN_OK;
    }
    if (options->groups == NULL || options->groups->struct_size < sizeof(dunlin_parameter_group)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "option groups has struct_size %zu; it must be at least %zu",
                            options->groups != NULL ? (size_t)options->groups->struct_size : 0,
                            sizeof(dunlin_parameter_group));
    }
    for (int32_t i = 0; i < options->n_groups; i++) {
        const dunlin_parameter_group group = dunlin__choice_group(options->groups, i);
        DUNLIN_TRY(check_group(&group, i, options->groups->struct_size, error));
    }
    return DUNLIN_OK;
}

/* The use is looked for only where somebody asks: that goes through the network. */
static bool is_used_as(const dunlin_net *net, uint32_t param, uint32_t uses)
{
    return (DUNLIN_USE_BIT(dunlin__net_use(net, param)) & uses) != 0;
}

bool dunlin__choice_is_bias_or_norm(const dunlin_net *net, uint32_t param)
{
    return is_used_as(net, param, BIASES_AND_NORMS);
}

static bool is_in_group(const dunlin_net *net, const dunlin_parameter_group *group, uint32_t param)
{
    const bool is_named =
        group->patterns == NULL || matches_patterns(group->patterns, net->params[param].name);
    return is_named && (group->uses == 0 || is_used_as(net, param, group->uses));
}

static bool is_of_head(const dunlin_net *net, uint32_t param)
{
    const dunlin_net_node *head = dunlin__net_head(net);
    for (uint32_t k = 0; head != NULL && k < head->n_params; k++) {
        if (head->params[k] == param) {
            return true;
        }
    }
    return false;
}

static bool is_fixed(const dunlin_net *net, const dunlin_step_build_options *options,
                     uint32_t param)
{
    const char *name = net->params[param].name;
    if (dunlin__param_is_fixed(net, param) || matches_prefix(options->frozen_prefixes, name) ||
        (options->trained_prefixes != NULL && !matches_prefix(options->trained_prefixes, name))) {
        return true;
    }
    switch (options->trained) {
    case DUNLIN_TRAINED_HEAD:
        return !is_of_head(net, param);
    case DUNLIN_TRAINED_BIASES_AND_NORMS:
        return !is_used_as(net, param, BIASES_AND_NORMS | DUNLIN_USE_BIT(DUNLIN_USE_STATISTIC));
    case DUNLIN_TRAINED_ALL:
        break;
    }
    return false;
}

dunlin_choice dunlin__choose(const dunlin_net *net, const dunlin_step_build_options *options,
                             uint32_t param)
{
    dunlin_choice choice = {.group = -1};
    choice.is_fixed = is_fixed(net, options, param);
    choice.is_trained = !choice.is_fixed && net->params[param].role != DUNLIN_PARAMETER_STATISTIC;
    if (!choice.is_trained) {
        return choice;
    }
    choice.lr_factor = 1.0F;
    choice.decay_factor = 1.0F;
    for (int32_t i = 0; i < options->n_groups && choice.group < 0; i++) {
        const dunlin_parameter_group group = dunlin__choice_group(options->groups, i);
        if (is_in_group(net, &group, param)) {
            choice.group = i;
            choice.lr_factor = group.lr_factor;
            choice.decay_factor = group.decay_factor;
        }
    }
    if (options->no_norm_decay && dunlin__choice_is_bias_or_norm(net, param)) {
        choice.decay_factor = 0.0F;
    }
    return choice;
}

/* A group that matches nothing is a slip of the pen, too. */
static dunlin_status check_groups(const dunlin_net *net, const dunlin_step_build_options *options,
                                  dunlin_error *error)
{
    for (int32_t g = 0; g < options->n_groups; g++) {
        const dunlin_parameter_group group = dunlin__choice_group(options->groups, g);
        bool has_any = false;
        for (uint32_t i = 0; i < net->n_params && !has_any; i++) {
            has_any = is_in_group(net, &group, i);
        }
        if (!has_any) {
            char buffer[DUNLIN_GROUP_NAME_BYTES];
            return dunlin__fail(error, DUNLIN_ARGUMENT, "step", 0,
                                "group \"%.60s\" has no parameter: none is matched by \"%.80s\"%s",
                                dunlin__choice_group_name(&group, g, buffer),
                                group.patterns == NULL ? "*" : group.patterns,
                                group.uses == 0 ? "" : " and has one of its uses");
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__choice_check(const dunlin_net *net, const dunlin_step_build_options *options,
                                   dunlin_error *error)
{
    DUNLIN_TRY(check_prefixes(net, options->frozen_prefixes, "frozen", error));
    DUNLIN_TRY(check_prefixes(net, options->trained_prefixes, "trained", error));
    if (options->trained == DUNLIN_TRAINED_HEAD && dunlin__net_head(net) == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "step", 0,
                            "only the head is to be trained, but the network does not end in a "
                            "dense layer or a 1x1 convolution");
    }
    return check_groups(net, options, error);
}

dunlin_status dunlin__choice_check_trained(const dunlin_net *net,
                                           const dunlin_step_build_options *options,
                                           dunlin_error *error)
{
    if (net->n_params == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "the network has 0 parameters: there is nothing to train");
    }
    bool has_trained = false;
    for (uint32_t i = 0; i < net->n_params; i++) {
        const dunlin_choice choice = dunlin__choose(net, options, i);
        has_trained = has_trained || choice.is_trained;
        if (choice.is_trained && choice.lr_factor > 0.0F) {
            return DUNLIN_OK;
        }
    }
    if (has_trained) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                            "none of the network's %zu parameters is trained: all that are not "
                            "frozen are in groups with lr_factor 0",
                            net->n_params);
    }
    return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                        "none of the network's %zu parameters is trained: options "
                        "frozen_prefixes, trained_prefixes and trained leave none",
                        net->n_params);
}

bool dunlin__choice_keep_groups(const dunlin_step_build_options *options, dunlin_step_graph *graph)
{
    if (options->n_groups == 0) {
        return true;
    }
    dunlin_step_group *kept =
        dunlin__step_pool_take(&graph->pool, (size_t)options->n_groups * sizeof *kept);
    for (int32_t i = 0; kept != NULL && i < options->n_groups; i++) {
        const dunlin_parameter_group group = dunlin__choice_group(options->groups, i);
        char buffer[DUNLIN_GROUP_NAME_BYTES];
        const char *name =
            dunlin__step_pool_text(&graph->pool, dunlin__choice_group_name(&group, i, buffer), "");
        kept[i] = (dunlin_step_group){
            .name = name, .lr_factor = group.lr_factor, .decay_factor = group.decay_factor};
        if (name == NULL) {
            return false;
        }
    }
    graph->groups = kept;
    return kept != NULL;
}
