/*
 * int_emit.c - how the rows of integer operators add tensors, ops and links to a step.
 *
 * Invariant: a value or an error has one tensor and one site; whoever reads the one reads the
 * exponent of the other.
 */
#include "int_emit.h"

#include <mem/support.h>

#include <assert.h>

static size_t edges_before(const dunlin_net *net, size_t node_index)
{
    size_t n = 0;
    for (size_t i = 0; i < node_index; i++) {
        n += net->nodes[i].n_inputs;
    }
    return n;
}

uint32_t dunlin__integer_first_site(const dunlin_net *net)
{
    return (uint32_t)net->n_params;
}

uint32_t dunlin__integer_value_site(const dunlin_net *net, uint32_t value)
{
    return dunlin__integer_first_site(net) + value;
}

static uint32_t first_error(const dunlin_net *net)
{
    return dunlin__integer_first_site(net) + (uint32_t)net->n_values;
}

uint32_t dunlin__integer_loss_site(const dunlin_net *net)
{
    return first_error(net) + 2 * (uint32_t)edges_before(net, net->n_nodes);
}

size_t dunlin__integer_n_sites(const dunlin_net *net)
{
    return (size_t)dunlin__integer_loss_site(net) + 1;
}

uint32_t dunlin__integer_error_site(const dunlin_integer *integer, uint32_t index)
{
    const dunlin_net *net = integer->emit->net;
    return first_error(net) + 2 * ((uint32_t)edges_before(net, integer->emit->node_index) + index);
}

void dunlin__integer_read(dunlin_integer_draft *draft, uint32_t tensor)
{
    assert(draft->n < DUNLIN_INTEGER_MAX_ACCESSES - 2);
    draft->accesses[draft->n++] =
        (dunlin_mem_access){.tensor = tensor, .mode = DUNLIN_MEM_READ, .parts = DUNLIN_MEM_MAP};
}

void dunlin__integer_write(dunlin_integer_draft *draft, uint32_t tensor)
{
    assert(draft->n < DUNLIN_INTEGER_MAX_ACCESSES - 2);
    draft->accesses[draft->n++] =
        (dunlin_mem_access){.tensor = tensor, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_MAP};
}

void dunlin__integer_add_link(dunlin_integer *integer, const dunlin_integer_link *link)
{
    dunlin_emit *emit = integer->emit;
    void *links = integer->links;
    if (emit->status != DUNLIN_OK) {
        return;
    }
    if (!dunlin__grow_array(&emit->graph->alloc, &links, &integer->links_capacity,
                            integer->n_links + 1, sizeof *link)) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the scales of a step");
        return;
    }
    integer->links = links;
    integer->links[integer->n_links++] = *link;
}

void dunlin__integer_emit(dunlin_integer *integer, dunlin_integer_draft *draft)
{
    const bool counts = draft->counting != NULL && integer->counts != DUNLIN_STEP_NONE;
    dunlin_integer_op *op = draft->params;
    for (uint32_t i = 0; i < draft->n && counts; i++) {
        if (draft->accesses[i].mode == DUNLIN_MEM_READ) {
            draft->accesses[i].parts = DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE;
        }
    }
    op->sites_operand = (int32_t)draft->n;
    op->counts_operand = -1;
    draft->accesses[draft->n++] =
        (dunlin_mem_access){.tensor = integer->emit->graph->sites,
                            .mode = DUNLIN_MEM_READ,
                            .parts = counts ? DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE : DUNLIN_MEM_MAP};
    if (counts) {
        op->counts_operand = (int32_t)draft->n;
        draft->accesses[draft->n++] = (dunlin_mem_access){
            .tensor = integer->counts, .mode = DUNLIN_MEM_ACCUMULATE, .parts = DUNLIN_MEM_REDUCE};
        dunlin__integer_add_link(integer, &op->link);
    }
    dunlin__emit_run(integer->emit,
                     &(dunlin_emit_op){.kernel = counts ? draft->counting : draft->kernel,
                                       .suffix = draft->suffix,
                                       .params = draft->params,
                                       .params_bytes = draft->params_bytes,
                                       .accesses = draft->accesses,
                                       .n_accesses = draft->n,
                                       .flops_per_sample = draft->flops_per_sample});
}

dunlin_site_output dunlin__integer_open(const dunlin_kernel_call *call)
{
    const dunlin_integer_op *op = call->params;
    return dunlin__site_open(call, &op->link, op->sites_operand, op->counts_operand);
}

static uint32_t new_tensor(dunlin_integer *integer, uint32_t value, const char *suffix,
                           dunlin_dtype dtype, dunlin_mem_class mem_class)
{
    const dunlin_net_value *net_value = &integer->emit->net->values[value];
    return dunlin__emit_named_tensor(
        integer->emit, net_value->name, suffix,
        &(dunlin_step_tensor){.dtype = dtype,
                              .is_batched = true,
                              .n_elements = dunlin__value_elements(net_value),
                              .mem_class = mem_class});
}

dunlin_integer_ref dunlin__integer_output(dunlin_integer *integer, uint32_t value)
{
    const dunlin_integer_ref ref = {
        .tensor =
            new_tensor(integer, value, "", integer->precision->activations, DUNLIN_MEM_ACTIVATION),
        .site = dunlin__integer_value_site(integer->emit->net, value)};
    integer->values[value] = ref;
    return ref;
}

dunlin_integer_ref dunlin__integer_clipped_output(dunlin_integer *integer, uint32_t value)
{
    dunlin_integer_ref ref =
        dunlin__integer_output(integer, dunlin__integer_stored_as(integer, value));
    ref.site = dunlin__integer_value_site(integer->emit->net, value);
    integer->values[value] = ref;
    return ref;
}

uint32_t dunlin__integer_error_tensor(dunlin_integer *integer, uint32_t value)
{
    return new_tensor(integer, value, "/grad", integer->precision->errors, DUNLIN_MEM_GRADIENT);
}

dunlin_integer_ref dunlin__integer_error(dunlin_integer *integer, uint32_t index)
{
    const dunlin_emit *emit = integer->emit;
    const uint32_t value = emit->net->nodes[emit->node_index].inputs[index];
    return (dunlin_integer_ref){.tensor = dunlin__integer_error_tensor(integer, value),
                                .site = dunlin__integer_error_site(integer, index)};
}

bool dunlin__integer_needs_error(const dunlin_integer *integer, const dunlin_net_node *node,
                                 uint32_t index)
{
    return dunlin__emit_needs_grad(integer->emit, node->inputs[index]);
}
