/*
 * builder_nodes.h - a network under construction, and the nodes that layers add to it.
 */
#ifndef DUNLIN_MODEL_BUILDER_NODES_H
#define DUNLIN_MODEL_BUILDER_NODES_H

#include "builder.h"

struct dunlin_builder {
    dunlin_alloc alloc;
    dunlin_net net;
    dunlin_error error; /* status OK: none so far */
    uint32_t n_inputs;  /* the first values */
};

bool dunlin__builder_is_failed(const dunlin_builder *builder);
/* The builder fails with MEMORY. */
void dunlin__builder_fail_memory(dunlin_builder *builder);

/* builder_inputs.c: before the first layer the inputs, if there are several, are joined to one
 * example. False: the builder has failed. */
bool dunlin__builder_join_inputs(dunlin_builder *builder);
/* What several inputs and the output are called in a file; false when out of memory. */
bool dunlin__builder_note_border(dunlin_builder *builder);

/* False: the name of a layer is empty or too long, and the builder has failed. */
bool dunlin__builder_is_name_good(dunlin_builder *builder, const char *name);
/* A node over earlier values, not yet inferred; NULL when the builder has failed. */
dunlin_net_node *dunlin__builder_begin_node(dunlin_builder *builder, dunlin_op_kind kind,
                                            const char *name, const dunlin_value *inputs,
                                            int32_t n_inputs);
/* For layers without parameters: the kind and the number of the node. */
dunlin_net_node *dunlin__builder_begin_unnamed(dunlin_builder *builder, dunlin_op_kind kind,
                                               const char *kind_name, const dunlin_value *inputs,
                                               int32_t n_inputs);

#endif
