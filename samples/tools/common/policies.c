/*
 * policies.c - the table of policies and names.
 */
#include "policies.h"

#include <string.h>

static const struct {
    const char *name;
    dunlin_policy policy;
} policies[] = {{"auto", DUNLIN_POLICY_AUTO},        {"none", DUNLIN_POLICY_NONE},
                {"pool", DUNLIN_POLICY_POOL},        {"microbatch", DUNLIN_POLICY_MICROBATCH},
                {"ideal", DUNLIN_POLICY_IDEAL},      {"recompute", DUNLIN_POLICY_RECOMPUTE},
                {"sgc", DUNLIN_POLICY_SGC},          {"sage", DUNLIN_POLICY_SAGE},
                {"melon", DUNLIN_POLICY_MELON},      {"sublinear", DUNLIN_POLICY_SUBLINEAR},
                {"whole", DUNLIN_POLICY_WHOLE},      {"vdnn", DUNLIN_POLICY_VDNN},
                {"capuchin", DUNLIN_POLICY_CAPUCHIN}};

bool policy_parse(const char *name, dunlin_policy *out_policy)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        if (strcmp(policies[i].name, name) == 0) {
            *out_policy = policies[i].policy;
            return true;
        }
    }
    return false;
}

const char *policy_name(dunlin_policy policy)
{
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        if (policies[i].policy == policy) {
            return policies[i].name;
        }
    }
    return "unknown";
}

const char *policy_names(void)
{
    return "auto, none, pool, microbatch, ideal, recompute, sgc, sage, melon, sublinear, whole, "
           "vdnn, "
           "capuchin";
}
