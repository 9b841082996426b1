/*
 * graphs.c - builds abstract steps for tests.
 */
#include "graphs.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

test_graph *test_graph_new(void)
{
    test_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL) {
        abort();
    }
    graph->graph.tensors = graph->tensors;
    graph->graph.ops = graph->ops;
    return graph;
}

void test_graph_free(test_graph *graph)
{
    free(graph);
}

static const char *keep_name(test_graph *graph, const char *name)
{
    char *kept = graph->names[graph->n_names++];
    (void)snprintf(kept, sizeof graph->names[0], "%s", name);
    return kept;
}

static uint32_t add_tensor(test_graph *graph, dunlin_mem_tensor tensor)
{
    if (graph->graph.n_tensors == TEST_MAX_TENSORS) {
        abort();
    }
    tensor.name = keep_name(graph, tensor.name);
    graph->tensors[graph->graph.n_tensors] = tensor;
    return graph->graph.n_tensors++;
}

uint32_t test_batched(test_graph *graph, const char *name, uint64_t sample_bytes,
                      dunlin_mem_class mem_class)
{
    return add_tensor(graph, (dunlin_mem_tensor){.name = name,
                                                 .sample_bytes = sample_bytes,
                                                 .mem_class = mem_class,
                                                 .parent = DUNLIN_MEM_NONE});
}

uint32_t test_fixed(test_graph *graph, const char *name, uint64_t bytes, dunlin_mem_class mem_class)
{
    return add_tensor(graph, (dunlin_mem_tensor){.name = name,
                                                 .fixed_bytes = bytes,
                                                 .mem_class = mem_class,
                                                 .parent = DUNLIN_MEM_NONE});
}

uint32_t test_per_slice(test_graph *graph, const char *name, uint64_t bytes)
{
    const uint32_t tensor = test_fixed(graph, name, bytes, DUNLIN_MEM_SAVED);
    graph->tensors[tensor].is_per_slice = true;
    return tensor;
}

uint32_t test_persistent(test_graph *graph, const char *name, uint64_t bytes,
                         dunlin_mem_class mem_class)
{
    uint32_t tensor = test_fixed(graph, name, bytes, mem_class);
    graph->tensors[tensor].is_persistent = true;
    return tensor;
}

uint32_t test_part(test_graph *graph, const char *name, uint32_t parent, uint64_t offset,
                   uint64_t bytes)
{
    dunlin_mem_tensor part = graph->tensors[parent];
    part.name = name;
    part.parent = parent;
    part.parent_offset = offset;
    if (part.sample_bytes != 0) {
        part.sample_bytes = bytes;
    } else {
        part.fixed_bytes = bytes;
    }
    return add_tensor(graph, part);
}

uint32_t test_op(test_graph *graph, const char *name, uint8_t parts, const char *touches,
                 const uint32_t *tensors)
{
    uint32_t op = graph->graph.n_ops++;
    dunlin_mem_access *accesses = &graph->accesses[graph->n_accesses];
    uint32_t n = 0;
    uint8_t only = 0;
    if (op >= TEST_MAX_OPS || graph->n_accesses + strlen(touches) > TEST_MAX_ACCESSES) {
        abort();
    }
    for (const char *c = touches; *c != '\0'; c++) {
        if (*c == 'm' || *c == 'd') {
            only = *c == 'm' ? DUNLIN_MEM_MAP : DUNLIN_MEM_REDUCE;
            continue;
        }
        dunlin_mem_access *access = &accesses[n];
        access->tensor = tensors[n];
        access->mode = (uint8_t)(strchr("rwau", *c) - "rwau");
        access->parts = only != 0 ? only : parts;
        if (only == 0 && parts == (DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE)) {
            access->parts = *c == 'w' ? DUNLIN_MEM_MAP : *c == 'a' ? DUNLIN_MEM_REDUCE : parts;
        }
        only = 0;
        n++;
    }
    graph->n_accesses += n;
    for (int v = 0; v < 2; v++) {
        graph->variants[op][v] = (dunlin_mem_variant){.name = v == 0 ? "first" : "second",
                                                      .accesses = accesses,
                                                      .n_accesses = n,
                                                      .cost_fixed_ns = 1000,
                                                      .cost_sample_ns = 100,
                                                      .in_place_write = -1,
                                                      .in_place_read = -1};
    }
    graph->ops[op] = (dunlin_mem_op){.name = keep_name(graph, name),
                                     .parts = parts,
                                     .may_recompute = (parts & DUNLIN_MEM_MAP) != 0,
                                     .variants = graph->variants[op],
                                     .n_variants = 1};
    return op;
}

void test_in_place(test_graph *graph, uint32_t op, int32_t write, int32_t read)
{
    for (int v = 0; v < 2; v++) {
        graph->variants[op][v].in_place_write = write;
        graph->variants[op][v].in_place_read = read;
    }
}

/* --- random networks --- */

enum { MAX_LAYERS = 1024 };

typedef struct {
    test_graph *graph;
    const test_net_options *options;
    uint64_t *state;
    uint32_t value[MAX_LAYERS + 1]; /* outputs of the layers; 0: the input */
    uint32_t grad[MAX_LAYERS + 1];
    uint32_t sources[MAX_LAYERS + 1][2]; /* layers a layer reads */
    uint32_t weight[MAX_LAYERS + 1];
    uint32_t momentum[MAX_LAYERS + 1];
    uint32_t stats[MAX_LAYERS + 1]; /* finished batch statistics, or NONE */
} random_net;

static bool chance(random_net *net, uint64_t percent)
{
    return test_random_below(net->state, 100) < percent;
}

static uint64_t random_bytes(random_net *net, uint64_t most)
{
    return 4 * (1 + test_random_below(net->state, most / 4));
}

static void dress(random_net *net, uint32_t op)
{
    test_graph *graph = net->graph;
    for (int v = 0; v < 2; v++) {
        dunlin_mem_variant *variant = &graph->variants[op][v];
        variant->cost_fixed_ns = test_random_below(net->state, 5000);
        variant->cost_sample_ns = 1 + test_random_below(net->state, 1000);
        if (chance(net, 40)) {
            variant->workspace_fixed_bytes = random_bytes(net, net->options->max_sample_bytes);
        }
        if (chance(net, 20) && graph->ops[op].parts != DUNLIN_MEM_FIXED) {
            variant->workspace_sample_bytes = random_bytes(net, net->options->max_sample_bytes);
        }
    }
    graph->ops[op].n_variants = chance(net, 40) ? 2 : 1;
}

static const char *label(const char *base, uint32_t index)
{
    static char text[24];
    (void)snprintf(text, sizeof text, "%s%u", base, (unsigned)index);
    return text;
}

static uint64_t bytes_of(const random_net *net, uint32_t tensor)
{
    return net->graph->tensors[tensor].sample_bytes;
}

/* Batch norm of y: over the batch, or over each slice. */
static uint32_t add_norm(random_net *net, uint32_t i, uint32_t y)
{
    test_graph *graph = net->graph;
    const bool is_ghost = net->options->is_ghost;
    uint32_t sums = is_ghost ? test_per_slice(graph, label("sums", i), 64)
                             : test_fixed(graph, label("sums", i), 64, DUNLIN_MEM_ACCUMULATOR);
    uint32_t stats = is_ghost ? test_per_slice(graph, label("stats", i), 64)
                              : test_fixed(graph, label("stats", i), 64, DUNLIN_MEM_SAVED);
    uint32_t running = test_persistent(graph, label("run", i), 64, DUNLIN_MEM_STATISTIC);
    uint32_t out = test_batched(graph, label("n", i), bytes_of(net, y), DUNLIN_MEM_ACTIVATION);
    if (is_ghost) {
        uint32_t moments = test_fixed(graph, label("moments", i), 64, DUNLIN_MEM_ACCUMULATOR);
        TEST_OP(graph, label("sum", i), DUNLIN_MEM_MAP, "rw", y, sums);
        TEST_OP(graph, label("finish", i), DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, "rwa", sums, stats,
                moments);
        TEST_OP(graph, label("commit", i), DUNLIN_MEM_FIXED, "ru", moments, running);
    } else {
        TEST_OP(graph, label("sum", i), DUNLIN_MEM_REDUCE, "ra", y, sums);
        TEST_OP(graph, label("finish", i), DUNLIN_MEM_FIXED, "rwu", sums, stats, running);
    }
    uint32_t op = TEST_OP(graph, label("norm", i), DUNLIN_MEM_MAP, "rrw", y, stats, out);
    test_in_place(graph, op, 2, 0);
    net->stats[i] = stats;
    return out;
}

/* value of layer i from one or two earlier ones */
static void forward(random_net *net, uint32_t i)
{
    test_graph *graph = net->graph;
    uint64_t most = net->options->max_sample_bytes;
    uint32_t from = chance(net, 70) ? i - 1 : (uint32_t)test_random_below(net->state, i);
    uint32_t other = chance(net, 25) ? (uint32_t)test_random_below(net->state, i) : from;
    uint32_t x = net->value[from];
    uint32_t z = net->value[other];
    net->sources[i][0] = from;
    net->sources[i][1] = other;
    net->stats[i] = DUNLIN_MEM_NONE;
    net->weight[i] =
        test_persistent(graph, label("w", i), random_bytes(net, most), DUNLIN_MEM_WEIGHT);
    net->momentum[i] = test_persistent(
        graph, label("m", i), graph->tensors[net->weight[i]].fixed_bytes, DUNLIN_MEM_OPTIMIZER);
    uint32_t w = net->weight[i];
    if (chance(net, 15)) {
        w = test_fixed(graph, label("packed", i), graph->tensors[w].fixed_bytes, DUNLIN_MEM_SAVED);
        TEST_OP(graph, label("pack", i), DUNLIN_MEM_FIXED, "rw", net->weight[i], w);
    }
    uint64_t bytes = chance(net, 40) ? bytes_of(net, x) : random_bytes(net, most);
    uint32_t y = test_batched(graph, label("y", i), bytes, DUNLIN_MEM_ACTIVATION);
    if (other == from) {
        uint32_t op = TEST_OP(graph, label("layer", i), DUNLIN_MEM_MAP, "rrw", x, w, y);
        test_in_place(graph, op, 2, 0);
        dress(net, op);
    } else if (chance(net, 50)) {
        uint32_t op = TEST_OP(graph, label("join", i), DUNLIN_MEM_MAP, "rrrw", x, z, w, y);
        test_in_place(graph, op, 3, (int32_t)test_random_below(net->state, 2));
        dress(net, op);
    } else {
        graph->tensors[y].sample_bytes = bytes_of(net, x) + bytes_of(net, z);
        uint32_t left = test_part(graph, label("left", i), y, 0, bytes_of(net, x));
        uint32_t right = test_part(graph, label("right", i), y, bytes_of(net, x), bytes_of(net, z));
        dress(net, TEST_OP(graph, label("copyl", i), DUNLIN_MEM_MAP, "rw", x, left));
        dress(net, TEST_OP(graph, label("copyr", i), DUNLIN_MEM_MAP, "rrw", z, w, right));
    }
    if (net->options->has_norm && chance(net, 40)) {
        y = add_norm(net, i, y);
    }
    net->value[i] = y;
}

/* One more contribution to the gradient of layer `i`'s value. */
static void add_grad(random_net *net, uint32_t i, uint32_t dy, uint32_t weight)
{
    test_graph *graph = net->graph;
    if (i == 0) {
        return;
    }
    uint32_t dx =
        test_batched(graph, label("dx", i), bytes_of(net, net->value[i]), DUNLIN_MEM_GRADIENT);
    if (net->grad[i] == DUNLIN_MEM_NONE) {
        uint32_t op = TEST_OP(graph, label("back", i), DUNLIN_MEM_MAP, "rrw", dy, weight, dx);
        test_in_place(graph, op, 2, 0);
        dress(net, op);
        net->grad[i] = dx;
    } else if (chance(net, 50)) {
        TEST_OP(graph, label("addto", i), DUNLIN_MEM_MAP, "rrrw", dy, weight, net->grad[i],
                net->grad[i]);
    } else {
        uint32_t op =
            TEST_OP(graph, label("sum", i), DUNLIN_MEM_MAP, "rrrw", dy, weight, net->grad[i], dx);
        test_in_place(graph, op, 3, 2);
        net->grad[i] = dx;
    }
}

static void backward(random_net *net, uint32_t i)
{
    test_graph *graph = net->graph;
    uint32_t dy = net->grad[i];
    if (dy == DUNLIN_MEM_NONE) {
        return; /* nobody used the value */
    }
    uint32_t w = net->weight[i];
    uint32_t x = net->value[net->sources[i][0]];
    uint32_t dw =
        test_fixed(graph, label("dw", i), graph->tensors[w].fixed_bytes, DUNLIN_MEM_ACCUMULATOR);
    uint32_t stats = net->stats[i] != DUNLIN_MEM_NONE ? net->stats[i] : w;
    dress(net, TEST_OP(graph, label("wgrad", i), DUNLIN_MEM_REDUCE, "rrra", x, dy, stats, dw));
    if (chance(net, 20)) {
        TEST_OP(graph, label("wgrad2_", i), DUNLIN_MEM_REDUCE, "ra", dy, dw);
    }
    add_grad(net, net->sources[i][0], dy, w);
    if (net->sources[i][1] != net->sources[i][0]) {
        add_grad(net, net->sources[i][1], dy, w);
    }
    dress(net,
          TEST_OP(graph, label("update", i), DUNLIN_MEM_FIXED, "ruu", dw, w, net->momentum[i]));
}

void test_random_net(test_graph *graph, const test_net_options *options, uint64_t *state)
{
    random_net *net = calloc(1, sizeof *net);
    if (net == NULL || options->n_layers > MAX_LAYERS) {
        abort();
    }
    net->graph = graph;
    net->options = options;
    net->state = state;
    net->value[0] =
        test_batched(graph, "x", random_bytes(net, options->max_sample_bytes), DUNLIN_MEM_INPUT);
    uint32_t labels = test_batched(graph, "labels", 4, DUNLIN_MEM_INPUT);
    TEST_OP(graph, "input", DUNLIN_MEM_MAP, "ww", net->value[0], labels);
    for (uint32_t i = 0; i <= options->n_layers; i++) {
        net->grad[i] = DUNLIN_MEM_NONE;
    }
    for (uint32_t i = 1; i <= options->n_layers; i++) {
        forward(net, i);
    }
    uint32_t last = options->n_layers;
    uint32_t loss = test_fixed(graph, "loss", 16, DUNLIN_MEM_ACCUMULATOR);
    net->grad[last] =
        test_batched(graph, "dlogits", bytes_of(net, net->value[last]), DUNLIN_MEM_GRADIENT);
    TEST_OP(graph, "loss", DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, "rrwa", net->value[last], labels,
            net->grad[last], loss);
    TEST_OP(graph, "check", DUNLIN_MEM_FIXED, "r", loss);
    for (uint32_t i = last; i > 0; i--) {
        backward(net, i);
    }
    free(net);
}

/* --- failing allocations --- */

static void *failing_take(void *ctx, size_t bytes, size_t align)
{
    failing_alloc *failing = ctx;
    if (failing->n_left == 0) {
        return NULL;
    }
    failing->n_left--;
    return failing->counter.hooks.alloc_fn(failing->counter.hooks.ctx, bytes, align);
}

static void failing_give(void *ctx, void *memory, size_t bytes)
{
    failing_alloc *failing = ctx;
    failing->counter.hooks.free_fn(failing->counter.hooks.ctx, memory, bytes);
}

void failing_alloc_init(failing_alloc *failing, uint64_t n_left)
{
    dunlin_alloc_counter_init(&failing->counter, NULL);
    failing->hooks =
        (dunlin_alloc){.ctx = failing, .alloc_fn = failing_take, .free_fn = failing_give};
    failing->n_left = n_left;
}
