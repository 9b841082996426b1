/*
 * policies.h - the names of the trainer's policies, the same in every program.
 */
#ifndef SAMPLES_COMMON_POLICIES_H
#define SAMPLES_COMMON_POLICIES_H

#include <dunlin/trainer.h>

/* False if there is none of that name. */
bool policy_parse(const char *name, dunlin_policy *out_policy);

/* "unknown" for what is no policy. */
const char *policy_name(dunlin_policy policy);

/* All names in one line, with commas; valid as long as the program. */
const char *policy_names(void);

#endif
