/*
 * swap.c - which tensors may be swapped, the kernels that do it, and where each lies in the file.
 *
 * Invariant: a tensor's offset in the file is its own, so it holds what was written there last.
 */
#include "swap.h"

#include <mem/support.h>

#include <string.h>

#define MOST_BUFFER_BYTES (256 << 10)
#define BUFFER_SAMPLES 16

typedef struct swap_params {
    uint32_t pair;
    uint64_t sample_bytes;
} swap_params;

/* A buffer of whole blocks, however the workspace lies. */
static uint64_t buffer_bytes(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                             uint64_t *out_sample_bytes)
{
    const swap_params *p = params;
    const uint64_t wanted = p->sample_bytes * BUFFER_SAMPLES;
    const uint64_t bytes = wanted < MOST_BUFFER_BYTES ? wanted : MOST_BUFFER_BYTES;
    (void)kernels;
    (void)n_threads;
    *out_sample_bytes = 0;
    return (bytes / DUNLIN_SWAP_BLOCK + 2) * DUNLIN_SWAP_BLOCK;
}

static dunlin_swap_piece piece_of(const dunlin_kernel_call *call)
{
    const swap_params *params = call->params;
    return (dunlin_swap_piece){.offset = call->run->swap->offsets[params->pair],
                               .bytes = call->operands[0],
                               .n = (uint64_t)call->n_samples * params->sample_bytes,
                               .buffer = call->workspace,
                               .buffer_bytes = call->workspace_bytes};
}

static dunlin_status run_out(const dunlin_kernel_call *call)
{
    const dunlin_swap_piece piece = piece_of(call);
    return dunlin__swap_write(&call->run->swap->file, &piece, call->run->error);
}

static dunlin_status run_in(const dunlin_kernel_call *call)
{
    const dunlin_swap_piece piece = piece_of(call);
    return dunlin__swap_read(&call->run->swap->file, &piece, call->run->error);
}

static const dunlin_step_kernel out_kernel = {.name = "swap_out",
                                              .run_fn = run_out,
                                              .parts = DUNLIN_MEM_MAP,
                                              .in_place_write = -1,
                                              .in_place_read = -1,
                                              .workspace_fn = buffer_bytes};
static const dunlin_step_kernel in_kernel = {.name = "swap_in",
                                             .run_fn = run_in,
                                             .parts = DUNLIN_MEM_MAP,
                                             .may_recompute = true,
                                             .in_place_write = -1,
                                             .in_place_read = -1,
                                             .workspace_fn = buffer_bytes};

/* --- which tensors --- */

enum { WANTED_FORWARD = 1, READ_BACKWARD = 2 };

static uint32_t root_of(const dunlin_step_graph *graph, uint32_t tensor)
{
    while (graph->tensors[tensor].is_part) {
        tensor = graph->tensors[tensor].parent;
    }
    return tensor;
}

/* Marks what the ops touch in each pass; a convolution is known by its kernel's name. */
static size_t mark(const dunlin_step_graph *graph, dunlin_swap_what what, uint8_t *marks)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->n_ops; i++) {
        const dunlin_step_op *op = &graph->ops[i];
        const bool is_wanted = what == DUNLIN_SWAP_ALL || strcmp(op->kernel->name, "conv") == 0;
        for (uint32_t a = 0; a < op->n_accesses; a++) {
            const dunlin_mem_access *access = &op->accesses[a];
            const bool is_read = access->mode == DUNLIN_MEM_READ;
            uint8_t *at = &marks[root_of(graph, access->tensor)];
            if (!op->is_backward && is_wanted && (is_read || what == DUNLIN_SWAP_ALL)) {
                *at |= WANTED_FORWARD;
            } else if (op->is_backward && is_read) {
                *at |= READ_BACKWARD;
            }
        }
    }
    for (size_t t = 0; t < graph->n_tensors; t++) {
        const dunlin_step_tensor *tensor = &graph->tensors[t];
        marks[t] =
            marks[t] == (WANTED_FORWARD | READ_BACKWARD) && tensor->is_batched && !tensor->is_part;
        n += marks[t];
    }
    return n;
}

static bool make_op(dunlin_step_graph *graph, uint32_t tensor, uint32_t pair, bool is_out,
                    dunlin_step_op *out)
{
    const dunlin_mem_access access = {.tensor = tensor,
                                      .mode = is_out ? DUNLIN_MEM_READ : DUNLIN_MEM_WRITE,
                                      .parts = DUNLIN_MEM_MAP};
    const swap_params params = {.pair = pair,
                                .sample_bytes = dunlin__step_tensor_bytes(&graph->tensors[tensor])};
    *out =
        (dunlin_step_op){.kernel = is_out ? &out_kernel : &in_kernel,
                         .name = dunlin__step_pool_text(&graph->pool, graph->tensors[tensor].name,
                                                        is_out ? "/swap_out" : "/swap_in"),
                         .params = dunlin__step_pool_copy(&graph->pool, &params, sizeof params),
                         .accesses = dunlin__step_pool_copy(&graph->pool, &access, sizeof access),
                         .n_accesses = 1,
                         .n_own = 1,
                         .is_backward = !is_out};
    return out->name != NULL && out->params != NULL && out->accesses != NULL;
}

static dunlin_status no_memory(size_t n, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_MEMORY, "step", 0, "no memory to swap %zu tensors", n);
}

static dunlin_status add(dunlin_step_graph *graph, const uint8_t *marks, size_t n,
                         dunlin_error *error)
{
    const size_t n_all = graph->n_ops + 2 * n;
    dunlin_step_op *ops = dunlin__alloc_array(&graph->alloc, n_all, sizeof *ops);
    if (ops == NULL) {
        return no_memory(n, error);
    }
    memcpy(ops, graph->ops, graph->n_ops * sizeof *ops);
    dunlin__free_array(&graph->alloc, graph->ops, graph->ops_capacity, sizeof *ops);
    graph->ops = ops;
    graph->ops_capacity = n_all;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const uint32_t pair = (uint32_t)graph->n_swaps;
        dunlin_step_op *at = &ops[graph->n_ops + 2 * (size_t)pair];
        if (marks[t] == 0) {
            continue;
        }
        if (!make_op(graph, t, pair, true, &at[0]) || !make_op(graph, t, pair, false, &at[1])) {
            return no_memory(n, error);
        }
        graph->n_swaps++;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__step_add_swaps(dunlin_step_graph *graph, dunlin_swap_what what,
                                     dunlin_error *error)
{
    uint8_t *marks = dunlin__alloc_zeroed(&graph->alloc, graph->n_tensors, 1);
    if (marks == NULL) {
        return no_memory(graph->n_tensors, error);
    }
    const size_t n = mark(graph, what, marks);
    const dunlin_status status = n > 0 ? add(graph, marks, n, error) : DUNLIN_OK;
    dunlin__free_array(&graph->alloc, marks, graph->n_tensors, 1);
    return status;
}

/* --- places in the file --- */

dunlin_swap *dunlin__swap_new(const dunlin_step_graph *graph, const dunlin_alloc *alloc)
{
    const size_t n = graph->n_swaps + 1; /* an array of nothing cannot be told from none */
    dunlin_swap *swap = dunlin__alloc_zeroed(alloc, 1, sizeof *swap);
    uint64_t *offsets = swap == NULL ? NULL : dunlin__alloc_zeroed(alloc, n, sizeof *offsets);
    if (offsets == NULL) {
        dunlin__free_array(alloc, swap, 1, sizeof *swap);
        return NULL;
    }
    *swap = (dunlin_swap){.alloc = *alloc,
                          .file = {.fd = -1},
                          .offsets = offsets,
                          .n_offsets = n,
                          .free_fn = dunlin__swap_free,
                          .begin_fn = dunlin__swap_begin,
                          .way_fn = dunlin__swap_way};
    return swap;
}

void dunlin__swap_free(dunlin_swap *swap)
{
    if (swap != NULL) {
        const dunlin_alloc alloc = swap->alloc;
        dunlin__swap_close(&swap->file);
        dunlin__free_array(&alloc, swap->offsets, swap->n_offsets, sizeof *swap->offsets);
        dunlin__free_array(&alloc, swap, 1, sizeof *swap);
    }
}

dunlin_status dunlin__swap_begin(dunlin_swap *swap, const dunlin_step_graph *graph,
                                 const dunlin_plan *plan, const char *folder, dunlin_error *error)
{
    uint64_t end = 0;
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        const uint32_t op = plan->steps[k].op;
        if (op < graph->n_ops || (op - graph->n_ops) % 2 != 0) {
            continue;
        }
        const swap_params *params = graph->ops[op].params;
        const uint64_t blocks = plan->batch * params->sample_bytes / DUNLIN_SWAP_BLOCK + 1;
        swap->offsets[params->pair] = end;
        end += blocks * DUNLIN_SWAP_BLOCK;
    }
    if (end == 0) {
        return DUNLIN_OK;
    }
    return dunlin__swap_open(dunlin__swap_folder(folder), end, &swap->file, error);
}
