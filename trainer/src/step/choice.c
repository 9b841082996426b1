/*
 * choice.c - which parameters the options leave to be trained.
 */
#include "choice.h"

#include <mem/support.h>

#include <string.h>

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

void dunlin__choice_options(const dunlin_trainer_options *from, dunlin_step_build_options *out)
{
    out->frozen_prefixes = from->frozen_prefixes;
}

dunlin_status dunlin__choice_check(const dunlin_net *net, const dunlin_step_build_options *options,
                                   dunlin_error *error)
{
    return check_prefixes(net, options->frozen_prefixes, "frozen", error);
}

dunlin_choice dunlin__choose(const dunlin_net *net, const dunlin_step_build_options *options,
                             uint32_t param)
{
    const dunlin_net_param *net_param = &net->params[param];
    const bool is_fixed = matches_prefix(options->frozen_prefixes, net_param->name);
    return (dunlin_choice){
        .is_fixed = is_fixed,
        .is_trained = !is_fixed && net_param->role != DUNLIN_PARAMETER_STATISTIC,
    };
}
