/*
 * narrow.c - see narrow.h.
 *
 * Invariant: all of a piece is read before any of it is written, so an output may lie on an input
 * in the arena. A tensor that several accesses name is one.
 */
#include "narrow.h"

#include <mem/support.h>

#include <assert.h>

#define ROOM_BYTES ((int64_t)4 << 20) /* wanted for the floats of all samples at a time */
#define BATCH_PARTS 2                 /* a piece is no more of a batch than this part of it */
#define USUAL_BATCH 32                /* of a step whose batch is not known */
#define LINE_FLOATS 16

/* A tensor in bfloat16 of an op under way. */
typedef struct narrow_tensor {
    uint32_t tensor;
    int64_t n_elements; /* a sample */
    uint16_t *arena;    /* of the slice's first sample; NULL: the running parts do not touch it */
    float *floats;
    bool is_read;
} narrow_tensor;

static bool is_narrow(const dunlin_step_graph *graph, uint32_t tensor)
{
    return graph->tensors[tensor].dtype == DUNLIN_BF16;
}

static int64_t line_floats(int64_t n)
{
    return (n + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

/* The access names a tensor that none before it did. */
static bool is_first_access(const dunlin_step_op *op, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        if (op->accesses[i].tensor == op->accesses[index].tensor) {
            return false;
        }
    }
    return true;
}

dunlin_narrow dunlin__narrow_of(const dunlin_step_graph *graph, const dunlin_step_op *op)
{
    dunlin_narrow narrow = {.n = 0};
    if (graph->storage == DUNLIN_STORAGE_EXACT || op >= graph->ops + graph->n_ops) {
        return narrow;
    }
    for (uint32_t i = 0; i < op->n_accesses - (op->has_guard ? 1 : 0); i++) {
        const uint32_t tensor = op->accesses[i].tensor;
        if (is_narrow(graph, tensor) && is_first_access(op, i)) {
            narrow.n++;
            narrow.sample_floats += line_floats(graph->tensors[tensor].n_elements);
        }
    }
    if (narrow.n > 0) {
        const int64_t batch = graph->batch > 0 ? graph->batch : USUAL_BATCH;
        const int64_t most = (batch + BATCH_PARTS - 1) / BATCH_PARTS;
        const int64_t fit = ROOM_BYTES / (narrow.sample_floats * (int64_t)sizeof(float));
        narrow.n_samples = fit < 1 ? 1 : fit < most ? fit : most;
    }
    return narrow;
}

uint64_t dunlin__step_tensor_bytes(const dunlin_step_tensor *tensor)
{
    return (uint64_t)tensor->n_elements * dunlin_dtype_bytes(tensor->dtype);
}

uint64_t dunlin__narrow_bytes(const dunlin_narrow *narrow)
{
    return narrow->n == 0
               ? 0
               : (uint64_t)narrow->n_samples * (uint64_t)narrow->sample_floats * sizeof(float);
}

/* Bytes from one sample to the next, of a part those of its outermost parent; 0: the same for all
 * samples. */
static uint64_t sample_step(const dunlin_step_graph *graph, uint32_t tensor)
{
    while (graph->tensors[tensor].is_part) {
        tensor = graph->tensors[tensor].parent;
    }
    return graph->tensors[tensor].is_batched ? dunlin__step_tensor_bytes(&graph->tensors[tensor])
                                             : 0;
}

/* The tensors of an op that are stored in fewer bits; `at` of each access is its index here, -1: it
 * is none of them. */
typedef struct narrow_list {
    narrow_tensor tensors[DUNLIN_STEP_MAX_ACCESSES];
    int16_t at[DUNLIN_STEP_MAX_ACCESSES];
} narrow_list;

/* Lists the op's tensors, with their places in the workspace; how many there are. */
static uint32_t list_tensors(const dunlin_step_graph *graph, const dunlin_step_op *op,
                             const dunlin_narrow *narrow, const dunlin_kernel_call *call,
                             narrow_list *out)
{
    narrow_tensor *list = out->tensors;
    int16_t *at = out->at;
    const uint64_t bytes = dunlin__narrow_bytes(narrow);
    float *floats =
        (float *)(void *)((unsigned char *)call->workspace + call->workspace_bytes - bytes);
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        const dunlin_mem_access *access = &op->accesses[i];
        uint32_t k = 0;
        at[i] = -1;
        if (call->operands[i] == NULL || !is_narrow(graph, access->tensor)) {
            continue;
        }
        while (k < n && list[k].tensor != access->tensor) {
            k++;
        }
        if (k == n) {
            const int64_t n_elements = graph->tensors[access->tensor].n_elements;
            list[n++] = (narrow_tensor){.tensor = access->tensor,
                                        .n_elements = n_elements,
                                        .arena = call->operands[i],
                                        .floats = floats};
            floats += narrow->n_samples * line_floats(n_elements);
        }
        list[k].is_read = list[k].is_read || access->mode != DUNLIN_MEM_WRITE;
        at[i] = (int16_t)k;
    }
    return n;
}

/* The addresses of a piece's operands, from sample `first` of the slice on. */
static void place_piece(const dunlin_step_graph *graph, const dunlin_step_op *op,
                        const dunlin_kernel_call *call, int64_t first, const narrow_list *list,
                        void **operands, uint16_t **halves)
{
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        unsigned char *base = call->operands[i];
        operands[i] = NULL;
        halves[i] = NULL;
        if (list->at[i] >= 0) {
            const narrow_tensor *tensor = &list->tensors[list->at[i]];
            operands[i] = tensor->floats;
            if (op->accesses[i].mode != DUNLIN_MEM_READ) {
                halves[i] = tensor->arena + first * tensor->n_elements;
            }
        } else if (base != NULL) {
            operands[i] = base + (uint64_t)first * sample_step(graph, op->accesses[i].tensor);
        }
    }
}

dunlin_status dunlin__narrow_run(const dunlin_step_graph *graph, const dunlin_step_op *op,
                                 const dunlin_narrow *narrow, const dunlin_kernel_call *call)
{
    const dunlin_kernels *kernels = call->run->kernels;
    dunlin_threads *threads = call->run->threads;
    narrow_list list = {.at = {0}};
    void *operands[DUNLIN_STEP_MAX_ACCESSES];
    uint16_t *halves[DUNLIN_STEP_MAX_ACCESSES];
    const uint32_t n_list = list_tensors(graph, op, narrow, call, &list);
    assert(n_list <= narrow->n);
    for (int64_t first = 0; first < call->n_samples; first += narrow->n_samples) {
        const int64_t left = call->n_samples - first;
        dunlin_kernel_call piece = *call;
        piece.operands = operands;
        piece.halves = halves;
        piece.n_samples = left < narrow->n_samples ? left : narrow->n_samples;
        piece.first_sample = call->first_sample + first;
        piece.is_first = call->is_first && first == 0;
        piece.workspace_bytes = call->workspace_bytes - (size_t)dunlin__narrow_bytes(narrow);
        place_piece(graph, op, call, first, &list, operands, halves);
        for (uint32_t k = 0; k < n_list; k++) {
            const narrow_tensor *tensor = &list.tensors[k];
            if (tensor->is_read) {
                kernels->bf16_load(piece.n_samples * tensor->n_elements,
                                   tensor->arena + first * tensor->n_elements, tensor->floats,
                                   threads);
            }
        }
        DUNLIN_TRY(op->kernel->run_fn(&piece));
        for (uint32_t i = 0; i < op->n_accesses; i++) {
            if (halves[i] != NULL) {
                kernels->bf16_store(piece.n_samples * list.tensors[list.at[i]].n_elements,
                                    operands[i], halves[i], threads);
            }
        }
    }
    return DUNLIN_OK;
}
