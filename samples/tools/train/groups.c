/*
 * groups.c - which parameters dunlin-train trains and in which groups: --trained, --decay-norms,
 * --groups.
 */
#include "train.h"

#include <string.h>

int train_check_groups(train_flags *flags)
{
    if (strcmp(flags->decay_norms, "yes") != 0 && strcmp(flags->decay_norms, "no") != 0) {
        return program_misuse(&train_program, "--decay-norms %s: expected yes or no",
                              flags->decay_norms);
    }
    return groups_parse(&train_program, flags->groups_given, &flags->groups);
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
    options->groups = flags->groups.groups;
    options->n_groups = flags->groups.n;
}
