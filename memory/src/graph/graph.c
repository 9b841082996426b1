/*
 * graph.c - checks the abstract step.
 *
 * Invariant: a graph that passes has a meaning of its own: run in its order, every read finds what
 * it asks for, and no size wraps at the batch asked for. No scratch is taken, so the check can run
 * before any budget is known; the price is a scan of the earlier ops for each read.
 */
#include <mem/checked.h>
#include <mem/graph.h>
#include <mem/support.h>

#include <inttypes.h>

#define SUBSYSTEM "graph"

static const char *tensor_name(const dunlin_mem_graph *graph, uint32_t tensor)
{
    const char *name = graph->tensors[tensor].name;
    return name == NULL ? "(unnamed)" : name;
}

static const char *op_name(const dunlin_mem_graph *graph, uint32_t op)
{
    const char *name = graph->ops[op].name;
    return name == NULL ? "(unnamed)" : name;
}

/* True if `above` is `tensor` or one of its parents. */
static bool is_within(const dunlin_mem_graph *graph, uint32_t tensor, uint32_t above)
{
    while (tensor != DUNLIN_MEM_NONE) {
        if (tensor == above) {
            return true;
        }
        tensor = graph->tensors[tensor].parent;
    }
    return false;
}

static bool changes(const dunlin_mem_access *access)
{
    return access->mode != DUNLIN_MEM_READ;
}

/* --- tensors --- */

static dunlin_status check_parent(const dunlin_mem_graph *graph, uint32_t index,
                                  dunlin_error *error)
{
    const dunlin_mem_tensor *part = &graph->tensors[index];
    if (part->parent >= graph->n_tensors) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s: its parent %" PRIu32 " is not one of %" PRIu32 " tensors",
                            tensor_name(graph, index), part->parent, graph->n_tensors);
    }
    uint32_t above = index;
    for (uint32_t i = 0; above != DUNLIN_MEM_NONE && above < graph->n_tensors; i++) {
        if (i > graph->n_tensors) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                                "tensor %s is a part of itself", tensor_name(graph, index));
        }
        above = graph->tensors[above].parent;
    }
    const dunlin_mem_tensor *parent = &graph->tensors[part->parent];
    if ((part->sample_bytes != 0) != (parent->sample_bytes != 0) ||
        part->is_per_slice != parent->is_per_slice ||
        part->is_persistent != parent->is_persistent || part->is_pinned != parent->is_pinned) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s is of another kind than its parent %s",
                            tensor_name(graph, index), tensor_name(graph, part->parent));
    }
    uint64_t end = 0;
    uint64_t room = parent->sample_bytes + parent->fixed_bytes;
    if (!dunlin__add_u64(part->parent_offset, part->sample_bytes + part->fixed_bytes, &end) ||
        end > room) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s: %" PRIu64 " bytes at %" PRIu64 " do not lie in the %" PRIu64
                            " bytes of its parent %s",
                            tensor_name(graph, index), part->sample_bytes + part->fixed_bytes,
                            part->parent_offset, room, tensor_name(graph, part->parent));
    }
    return DUNLIN_OK;
}

static dunlin_status check_tensor(const dunlin_mem_graph *graph, uint32_t index,
                                  dunlin_error *error)
{
    const dunlin_mem_tensor *tensor = &graph->tensors[index];
    const char *name = tensor_name(graph, index);
    if ((tensor->sample_bytes == 0) == (tensor->fixed_bytes == 0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s: exactly one of %" PRIu64 " bytes per sample and %" PRIu64
                            " fixed bytes must be 0",
                            name, tensor->sample_bytes, tensor->fixed_bytes);
    }
    if (tensor->is_persistent && tensor->fixed_bytes == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s is persistent but has bytes per sample", name);
    }
    if (tensor->is_per_slice && (tensor->is_persistent || tensor->fixed_bytes == 0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s is of one slice, but persistent or without fixed bytes",
                            name);
    }
    if (tensor->is_pinned && (tensor->is_persistent || dunlin__mem_is_sliced(tensor))) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s is pinned, but persistent or of slices", name);
    }
    if ((unsigned)tensor->mem_class >= DUNLIN_MEM_N_CLASSES) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "tensor %s: class %d is not one of %d", name, (int)tensor->mem_class,
                            (int)DUNLIN_MEM_N_CLASSES);
    }
    return tensor->parent == DUNLIN_MEM_NONE ? DUNLIN_OK : check_parent(graph, index, error);
}

/* --- sizes --- */

static bool add_rounded(uint64_t n, uint64_t sample_bytes, uint64_t fixed_bytes, uint64_t *total)
{
    uint64_t bytes = 0;
    return dunlin__mul_u64(n, sample_bytes, &bytes) &&
           dunlin__add_u64(bytes, fixed_bytes, &bytes) &&
           dunlin__align_u64(bytes, DUNLIN_MEM_ALIGN, &bytes) &&
           dunlin__add_u64(*total, bytes, total);
}

/* All tensors and all workspaces at once must fit 63 bits, and so must the predicted times: then no
 * sum of some of them wraps. */
static dunlin_status check_sizes(const dunlin_mem_graph *graph, uint64_t batch, dunlin_error *error)
{
    uint64_t total = 0;
    uint64_t cost = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const dunlin_mem_tensor *tensor = &graph->tensors[t];
        if (!add_rounded(batch, tensor->sample_bytes, tensor->fixed_bytes, &total) ||
            total > INT64_MAX) {
            return dunlin__fail(error, DUNLIN_OVERFLOW, SUBSYSTEM, 0,
                                "tensor %s: the bytes of a batch of %" PRIu64 " overflow",
                                tensor_name(graph, t), batch);
        }
    }
    for (uint32_t i = 0; i < dunlin__mem_n_all_ops(graph); i++) {
        for (uint32_t v = 0; v < graph->ops[i].n_variants; v++) {
            const dunlin_mem_variant *variant = &graph->ops[i].variants[v];
            uint64_t ns = 0;
            if (variant->reduce_permille > 1000) {
                return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                                    "op %s: its reduce part takes %u thousandths of its time",
                                    op_name(graph, i), (unsigned)variant->reduce_permille);
            }
            if (!add_rounded(batch, variant->workspace_sample_bytes, variant->workspace_fixed_bytes,
                             &total) ||
                total > INT64_MAX ||
                !dunlin__add_u64(variant->cost_sample_ns, variant->cost_fixed_ns, &ns) ||
                !dunlin__mul_u64(ns, batch, &ns) || !dunlin__add_u64(cost, ns, &cost) ||
                cost > INT64_MAX) {
                return dunlin__fail(error, DUNLIN_OVERFLOW, SUBSYSTEM, 0,
                                    "op %s: the workspace or the time of a batch of %" PRIu64
                                    " overflows",
                                    op_name(graph, i), batch);
            }
        }
    }
    return DUNLIN_OK;
}

/* --- accesses --- */

/* Why an access is not allowed, by itself; NULL if it is. */
static const char *access_fault(const dunlin_mem_op *op, const dunlin_mem_tensor *tensor,
                                const dunlin_mem_access *access)
{
    bool is_fixed_op = op->parts == DUNLIN_MEM_FIXED;
    bool is_batched = dunlin__mem_is_sliced(tensor);
    if (access->parts == 0 || (access->parts & ~op->parts) != 0) {
        return "is touched by parts that the op does not have";
    }
    if (is_fixed_op && is_batched) {
        return "has bytes per sample or slice, but the op is fixed";
    }
    switch ((dunlin_mem_mode)access->mode) {
    case DUNLIN_MEM_READ:
        return NULL;
    case DUNLIN_MEM_WRITE:
        if (tensor->is_persistent) {
            return "is persistent: it can only be updated";
        }
        if (is_batched && access->parts != DUNLIN_MEM_MAP) {
            return "has bytes per sample or slice: only a map part may write it";
        }
        return is_batched || is_fixed_op ? NULL : "is fixed: only a fixed op may write it";
    case DUNLIN_MEM_ACCUMULATE:
        if (is_batched || tensor->is_persistent) {
            return "is not a fixed tensor of this step: nothing can be accumulated in it";
        }
        return access->parts == DUNLIN_MEM_REDUCE ? NULL
                                                  : "is accumulated by other than a reduce part";
    case DUNLIN_MEM_UPDATE:
        return is_fixed_op && tensor->is_persistent
                   ? NULL
                   : "is updated, but only a fixed op updates, and only what is persistent";
    default:
        return "is touched in an unknown mode";
    }
}

static bool has_change(const dunlin_mem_variant *variant, const dunlin_mem_access *wanted)
{
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        if (access->tensor == wanted->tensor && access->mode == wanted->mode &&
            access->parts == wanted->parts) {
            return true;
        }
    }
    return false;
}

static dunlin_status check_in_place(const dunlin_mem_graph *graph, uint32_t op,
                                    const dunlin_mem_variant *variant, dunlin_error *error)
{
    int32_t write = variant->in_place_write;
    int32_t read = variant->in_place_read;
    if (write == -1 && read == -1) {
        return DUNLIN_OK;
    }
    if (write < 0 || read < 0 || (uint32_t)write >= variant->n_accesses ||
        (uint32_t)read >= variant->n_accesses ||
        variant->accesses[write].mode != DUNLIN_MEM_WRITE ||
        variant->accesses[read].mode != DUNLIN_MEM_READ) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s: in-place accesses %" PRId32 " and %" PRId32
                            " are not a write and a read of its %" PRIu32,
                            op_name(graph, op), write, read, variant->n_accesses);
    }
    return DUNLIN_OK;
}

static dunlin_status check_variant(const dunlin_mem_graph *graph, uint32_t op_index,
                                   const dunlin_mem_variant *variant, dunlin_error *error)
{
    const dunlin_mem_op *op = &graph->ops[op_index];
    const dunlin_mem_variant *first = &op->variants[0];
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        if (access->tensor >= graph->n_tensors) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                                "op %s: tensor %" PRIu32 " is not one of %" PRIu32,
                                op_name(graph, op_index), access->tensor, graph->n_tensors);
        }
        const char *fault = access_fault(op, &graph->tensors[access->tensor], access);
        if (fault == NULL && changes(access) && !has_change(first, access)) {
            fault = "is changed by one variant but not by another";
        }
        if (fault != NULL) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0, "op %s: tensor %s %s",
                                op_name(graph, op_index), tensor_name(graph, access->tensor),
                                fault);
        }
    }
    if (op->parts == DUNLIN_MEM_FIXED && variant->workspace_sample_bytes != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s is fixed but has %" PRIu64 " bytes of workspace per sample",
                            op_name(graph, op_index), variant->workspace_sample_bytes);
    }
    for (uint32_t a = 0; a < first->n_accesses; a++) {
        if (changes(&first->accesses[a]) && !has_change(variant, &first->accesses[a])) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                                "op %s: tensor %s is changed by one variant but not by another",
                                op_name(graph, op_index),
                                tensor_name(graph, first->accesses[a].tensor));
        }
    }
    return check_in_place(graph, op_index, variant, error);
}

static dunlin_status check_op(const dunlin_mem_graph *graph, uint32_t index, dunlin_error *error)
{
    const dunlin_mem_op *op = &graph->ops[index];
    bool is_batched = op->parts != 0 && (op->parts & ~(DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE)) == 0;
    if (!is_batched && op->parts != DUNLIN_MEM_FIXED) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s: parts %u are neither map, reduce or both, nor fixed",
                            op_name(graph, index), (unsigned)op->parts);
    }
    if (op->n_variants == 0 || op->n_variants > UINT8_MAX || op->variants == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s: %" PRIu32 " variants, not 1 to %d", op_name(graph, index),
                            op->n_variants, UINT8_MAX);
    }
    if (op->may_recompute && (op->parts & DUNLIN_MEM_MAP) == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s may be recomputed but has no map part", op_name(graph, index));
    }
    for (uint32_t v = 0; v < op->n_variants; v++) {
        DUNLIN_TRY(check_variant(graph, index, &op->variants[v], error));
    }
    return DUNLIN_OK;
}

/* --- the order --- */

/* Who changes what. The first variant stands for all: they change the same tensors. */
typedef struct {
    const dunlin_mem_graph *graph;
    dunlin_error *error;
    uint32_t *first_change; /* by tensor: the first op that changes it, itself or within a parent */
} order;

static void find_changes(const order *at)
{
    const dunlin_mem_graph *graph = at->graph;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        at->first_change[t] = DUNLIN_MEM_NONE;
    }
    for (uint32_t i = graph->n_ops; i > 0; i--) {
        const dunlin_mem_variant *variant = &graph->ops[i - 1].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            if (changes(&variant->accesses[a])) {
                at->first_change[variant->accesses[a].tensor] = i - 1;
            }
        }
    }
}

/* Written, itself or inside a parent, by an op before `end`. */
static bool is_made_before(const order *at, uint32_t tensor, uint32_t end)
{
    for (uint32_t t = tensor; t != DUNLIN_MEM_NONE; t = at->graph->tensors[t].parent) {
        if (at->first_change[t] < end) {
            return true;
        }
    }
    return false;
}

/* Made of its parts: each part that is written at all has been, and there is one. */
static bool is_assembled_before(const order *at, uint32_t tensor, uint32_t end)
{
    bool has_any = false;
    for (uint32_t t = 0; t < at->graph->n_tensors; t++) {
        if (at->first_change[t] == DUNLIN_MEM_NONE || !is_within(at->graph, t, tensor)) {
            continue;
        }
        if (!is_made_before(at, t, end)) {
            return false;
        }
        has_any = true;
    }
    return has_any;
}

/* An op at or after `begin` that accumulates in the tensor, its parts or its parents, or NONE. */
static uint32_t find_reducer_from(const dunlin_mem_graph *graph, uint32_t tensor, uint32_t begin)
{
    for (uint32_t i = begin; i < graph->n_ops; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const dunlin_mem_access *access = &variant->accesses[a];
            if (access->mode == DUNLIN_MEM_ACCUMULATE &&
                (is_within(graph, tensor, access->tensor) ||
                 is_within(graph, access->tensor, tensor))) {
                return i;
            }
        }
    }
    return DUNLIN_MEM_NONE;
}

static dunlin_status check_read(const order *at, uint32_t op, uint32_t tensor)
{
    const dunlin_mem_graph *graph = at->graph;
    if (graph->tensors[tensor].is_persistent) {
        return DUNLIN_OK;
    }
    if (!is_made_before(at, tensor, op) && !is_assembled_before(at, tensor, op)) {
        return dunlin__fail(at->error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s reads tensor %s before it is written", op_name(graph, op),
                            tensor_name(graph, tensor));
    }
    if (dunlin__mem_is_sliced(&graph->tensors[tensor])) {
        return DUNLIN_OK;
    }
    uint32_t reducer = find_reducer_from(graph, tensor, op);
    if (reducer != DUNLIN_MEM_NONE) {
        return dunlin__fail(at->error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s reads tensor %s before op %s has added to it",
                            op_name(graph, op), tensor_name(graph, tensor),
                            op_name(graph, reducer));
    }
    return DUNLIN_OK;
}

/* No tensor, part or parent of it is written as well as accumulated. */
static dunlin_status check_reducer(const dunlin_mem_graph *graph, uint32_t op, uint32_t tensor,
                                   dunlin_error *error)
{
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const dunlin_mem_access *access = &variant->accesses[a];
            if (access->mode == DUNLIN_MEM_WRITE && (is_within(graph, tensor, access->tensor) ||
                                                     is_within(graph, access->tensor, tensor))) {
                return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                                    "tensor %s is accumulated by op %s and written by op %s",
                                    tensor_name(graph, tensor), op_name(graph, op),
                                    op_name(graph, i));
            }
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_order(const order *at, uint32_t op, const dunlin_mem_variant *variant)
{
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        if (access->mode == DUNLIN_MEM_READ) {
            DUNLIN_TRY(check_read(at, op, access->tensor));
        } else if (access->mode == DUNLIN_MEM_ACCUMULATE) {
            DUNLIN_TRY(check_reducer(at->graph, op, access->tensor, at->error));
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_orders(const order *at)
{
    for (uint32_t i = 0; i < at->graph->n_ops; i++) {
        for (uint32_t v = 0; v < at->graph->ops[i].n_variants; v++) {
            DUNLIN_TRY(check_order(at, i, &at->graph->ops[i].variants[v]));
        }
    }
    return DUNLIN_OK;
}

/* One access of a map part to a batched tensor that is no part; both of a pair to the same one. */
static dunlin_status check_swap(const dunlin_mem_graph *graph, uint32_t op_index,
                                dunlin_error *error)
{
    const dunlin_mem_op *op = &graph->ops[op_index];
    const bool is_out = dunlin__mem_swap_of(graph, op_index) == DUNLIN_MEM_SWAP_OUT;
    DUNLIN_TRY(check_op(graph, op_index, error));
    const dunlin_mem_access *access = op->variants[0].accesses;
    const bool is_plain = op->n_variants == 1 && op->variants[0].n_accesses == 1 &&
                          op->parts == DUNLIN_MEM_MAP && access->parts == DUNLIN_MEM_MAP &&
                          access->mode == (is_out ? DUNLIN_MEM_READ : DUNLIN_MEM_WRITE) &&
                          graph->tensors[access->tensor].sample_bytes != 0 &&
                          graph->tensors[access->tensor].parent == DUNLIN_MEM_NONE;
    const bool is_pair =
        is_out ||
        (is_plain && graph->ops[op_index - 1].variants[0].accesses[0].tensor == access->tensor);
    if (!is_plain || !is_pair) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "op %s does not write out, or read back, one whole tensor of samples",
                            op_name(graph, op_index));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__graph_check(const dunlin_mem_graph *graph, uint64_t batch,
                                  const dunlin_alloc *alloc, dunlin_error *error)
{
    if (batch == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0, "a batch of 0 samples");
    }
    if (graph->n_ops == 0 || graph->ops == NULL || graph->n_tensors == 0 ||
        graph->tensors == NULL || graph->n_ops > INT32_MAX || graph->n_tensors > INT32_MAX ||
        graph->n_swaps > graph->n_tensors) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "%" PRIu32 " ops on %" PRIu32 " tensors are not a step", graph->n_ops,
                            graph->n_tensors);
    }
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        DUNLIN_TRY(check_tensor(graph, t, error));
    }
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        DUNLIN_TRY(check_op(graph, i, error));
    }
    for (uint32_t i = graph->n_ops; i < dunlin__mem_n_all_ops(graph); i++) {
        DUNLIN_TRY(check_swap(graph, i, error));
    }
    DUNLIN_TRY(check_sizes(graph, batch, error));
    const dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    const size_t n = graph->n_tensors;
    const order at = {.graph = graph,
                      .error = error,
                      .first_change = dunlin__alloc_array(&hooks, n, sizeof *at.first_change)};
    if (at.first_change == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, 0,
                            "no memory to check %" PRIu32 " ops", graph->n_ops);
    }
    find_changes(&at);
    const dunlin_status status = check_orders(&at);
    dunlin__free_array(&hooks, at.first_change, n, sizeof *at.first_change);
    return status;
}
