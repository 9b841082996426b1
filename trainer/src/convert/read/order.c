/*
 * order.c - nodes that some exporters list in no order come in one that works: each after those
 * whose outputs it reads.
 *
 * Invariant: nodes that are in order stay where they are. The search keeps its own stack, so a long
 * chain costs memory of the tables' size, no depth.
 */
#include "onnx.h"
#include "onnx/node/import.h"

#include <mem/support.h>

#include <string.h>

enum { NOT_SEEN = 0, OPEN, DONE };

/* A node whose inputs are being looked at. */
typedef struct step {
    uint32_t op, next_input;
} step;

typedef struct order {
    dunlin_onnx_import *import;
    uint32_t *makers; /* for each binding the node that makes it, or NONE */
    uint8_t *states;  /* of nodes */
    step *stack;
    dunlin_onnx_op *sorted;
    size_t n_stack, n_sorted;
} order;

static bool allocate(order *o)
{
    const dunlin_onnx_import *import = o->import;
    const dunlin_alloc *alloc = &import->file->alloc;
    const size_t n = import->file->n_ops;
    o->makers = dunlin__alloc_array(alloc, import->n_bindings + 1, sizeof *o->makers);
    o->states = dunlin__alloc_zeroed(alloc, n + 1, 1);
    o->stack = dunlin__alloc_array(alloc, n + 1, sizeof *o->stack);
    o->sorted = dunlin__alloc_array(alloc, n + 1, sizeof *o->sorted);
    return o->makers != NULL && o->states != NULL && o->stack != NULL && o->sorted != NULL;
}

static void release(order *o)
{
    const dunlin_onnx_import *import = o->import;
    const dunlin_alloc *alloc = &import->file->alloc;
    const size_t n = import->file->n_ops;
    dunlin__free_array(alloc, o->makers, import->n_bindings + 1, sizeof *o->makers);
    dunlin__free_array(alloc, o->states, n + 1, 1);
    dunlin__free_array(alloc, o->stack, n + 1, sizeof *o->stack);
    dunlin__free_array(alloc, o->sorted, n + 1, sizeof *o->sorted);
}

static void find_makers(order *o)
{
    const dunlin_onnx_import *import = o->import;
    memset(o->makers, 0xFF, import->n_bindings * sizeof *o->makers); /* NONE */
    for (uint32_t i = 0; i < import->file->n_ops; i++) {
        const dunlin_onnx_span outputs = import->file->ops[i].outputs;
        for (uint32_t j = 0; j < outputs.n; j++) {
            const uint32_t binding = import->refs[outputs.first + j];
            if (binding != DUNLIN_NET_NONE) {
                o->makers[binding] = i;
            }
        }
    }
}

/* The node that makes input `input` of a node, or NONE. */
static uint32_t maker_of(const order *o, uint32_t op, uint32_t input)
{
    const uint32_t binding = o->import->refs[o->import->file->ops[op].inputs.first + input];
    return binding != DUNLIN_NET_NONE ? o->makers[binding] : DUNLIN_NET_NONE;
}

static bool is_in_order(const order *o)
{
    for (uint32_t i = 0; i < o->import->file->n_ops; i++) {
        for (uint32_t j = 0; j < o->import->file->ops[i].inputs.n; j++) {
            const uint32_t maker = maker_of(o, i, j);
            if (maker != DUNLIN_NET_NONE && maker >= i) {
                return false;
            }
        }
    }
    return true;
}

static dunlin_status fail_cycle(const order *o, uint32_t op, uint32_t input)
{
    const dunlin_onnx_file *file = o->import->file;
    const dunlin_onnx_node node = {.import = o->import, .op = &file->ops[op], .index = op};
    return dunlin__fail(
        o->import->error, DUNLIN_MODEL, "onnx", 0,
        "the graph has a cycle: %.40s '%.70s' reads '%.70s', which is made from "
        "its own output",
        dunlin__onnx_op_type(&node), dunlin__onnx_node_name(&node),
        dunlin__onnx_text_at(o->import, file->names[node.op->inputs.first + input]));
}

/* The node and, before it, all that it depends on. */
static dunlin_status visit(order *o, uint32_t first)
{
    o->stack[o->n_stack++] = (step){.op = first};
    o->states[first] = OPEN;
    while (o->n_stack > 0) {
        step *top = &o->stack[o->n_stack - 1];
        const dunlin_onnx_op *op = &o->import->file->ops[top->op];
        if (top->next_input == op->inputs.n) {
            o->states[top->op] = DONE;
            o->sorted[o->n_sorted++] = *op;
            o->n_stack--;
            continue;
        }
        const uint32_t input = top->next_input++;
        const uint32_t maker = maker_of(o, top->op, input);
        if (maker == DUNLIN_NET_NONE || o->states[maker] == DONE) {
            continue;
        }
        if (o->states[maker] == OPEN) {
            return fail_cycle(o, top->op, input);
        }
        o->states[maker] = OPEN;
        o->stack[o->n_stack++] = (step){.op = maker};
    }
    return DUNLIN_OK;
}

static dunlin_status sort(order *o)
{
    dunlin_onnx_file *file = o->import->file;
    find_makers(o);
    if (is_in_order(o)) {
        return DUNLIN_OK;
    }
    for (uint32_t i = 0; i < file->n_ops; i++) {
        if (o->states[i] == NOT_SEEN) {
            DUNLIN_TRY(visit(o, i));
        }
    }
    memcpy(file->ops, o->sorted, file->n_ops * sizeof *file->ops);
    return DUNLIN_OK;
}

dunlin_status dunlin__onnx_sort(dunlin_onnx_import *import)
{
    order o = {.import = import};
    const dunlin_status status = allocate(&o) ? sort(&o) : dunlin__onnx_fail_memory(import);
    release(&o);
    return status;
}
