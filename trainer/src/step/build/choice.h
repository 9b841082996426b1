/*
 * choice.h - the effect of the options on each parameter of a network.
 */
#ifndef DUNLIN_STEP_CHOICE_H
#define DUNLIN_STEP_CHOICE_H

#include "graph/build.h"

typedef struct dunlin_choice {
    bool is_fixed; /* it stays as it is; of a running statistic: batch norm uses it as it is */
    bool is_trained;
    int32_t group; /* -1: none */
    float lr_factor, decay_factor;
} dunlin_choice;

/* The trainer's options that say which parameters are trained, and how. */
void dunlin__choice_options(const dunlin_trainer_options *from, dunlin_step_build_options *out);

/* What can be checked without a network: ARGUMENT. */
DUNLIN_NODISCARD dunlin_status dunlin__choice_check_options(const dunlin_trainer_options *options,
                                                            dunlin_error *error);

/* ARGUMENT for a prefix that begins no parameter's name and for a group without a parameter;
 * UNSUPPORTED where a head is to be trained and there is none. */
DUNLIN_NODISCARD dunlin_status dunlin__choice_check(const dunlin_net *net,
                                                    const dunlin_step_build_options *options,
                                                    dunlin_error *error);
/* ARGUMENT if nothing is trained. */
DUNLIN_NODISCARD dunlin_status dunlin__choice_check_trained(
    const dunlin_net *net, const dunlin_step_build_options *options, dunlin_error *error);

/* Of options that were checked. */
dunlin_choice dunlin__choose(const dunlin_net *net, const dunlin_step_build_options *options,
                             uint32_t param);

/* A bias, or a scale or shift of a norm. */
bool dunlin__choice_is_bias_or_norm(const dunlin_net *net, uint32_t param);

#define DUNLIN_GROUP_NAME_BYTES 24
/* A group of the options, whatever version made it; its name, or one made of the index. */
dunlin_parameter_group dunlin__choice_group(const dunlin_parameter_group *groups, int32_t index);
const char *dunlin__choice_group_name(const dunlin_parameter_group *group, int32_t index,
                                      char buffer[DUNLIN_GROUP_NAME_BYTES]);

/* Copies the groups into the graph's pool; false: no memory. */
bool dunlin__choice_keep_groups(const dunlin_step_build_options *options, dunlin_step_graph *graph);

#endif
