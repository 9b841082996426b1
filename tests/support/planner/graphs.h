/*
 * graphs.h - abstract steps for tests: built by hand, or random ones that look like training.
 */
#ifndef DUNLIN_TESTS_GRAPHS_H
#define DUNLIN_TESTS_GRAPHS_H

#include <dunlin/alloc.h>
#include <mem/graph.h>

#define TEST_MAX_TENSORS 8192
#define TEST_MAX_OPS 4096
#define TEST_MAX_ACCESSES 32768

/* Large and full of pointers into itself: made by test_graph_new, never copied. */
typedef struct test_graph {
    dunlin_mem_graph graph; /* valid at all times */
    dunlin_mem_tensor tensors[TEST_MAX_TENSORS];
    dunlin_mem_op ops[TEST_MAX_OPS];
    dunlin_mem_variant variants[TEST_MAX_OPS][2];
    dunlin_mem_access accesses[TEST_MAX_ACCESSES];
    uint32_t n_accesses;
    char names[TEST_MAX_TENSORS + TEST_MAX_OPS][24];
    uint32_t n_names;
} test_graph;

test_graph *test_graph_new(void);
void test_graph_free(test_graph *graph);

/* Each returns the new tensor's number. */
uint32_t test_batched(test_graph *graph, const char *name, uint64_t sample_bytes,
                      dunlin_mem_class mem_class);
uint32_t test_fixed(test_graph *graph, const char *name, uint64_t bytes,
                    dunlin_mem_class mem_class);
uint32_t test_per_slice(test_graph *graph, const char *name, uint64_t bytes);
uint32_t test_persistent(test_graph *graph, const char *name, uint64_t bytes,
                         dunlin_mem_class mem_class);
uint32_t test_part(test_graph *graph, const char *name, uint32_t parent, uint64_t offset,
                   uint64_t bytes);

/*
 * A new op with one variant; what it touches is text: letters r, w, a, u for the mode, each for
 * the next of `tensors`; "m" or "d" before a letter limits that access to the map or the reduce
 * part. Returns its number.
 */
uint32_t test_op(test_graph *graph, const char *name, uint8_t parts, const char *touches,
                 const uint32_t *tensors);
#define TEST_OP(graph, name, parts, touches, ...)                                                  \
    test_op(graph, name, parts, touches, (const uint32_t[]){__VA_ARGS__})

/* The op's write number `write` may lie on its read number `read` (access indices). */
void test_in_place(test_graph *graph, uint32_t op, int32_t write, int32_t read);

/* What a random network may hold. */
typedef struct test_net_options {
    uint32_t n_layers;
    uint64_t max_sample_bytes;
    bool has_norm; /* batch norm: barriers, */
    bool is_ghost; /* or of each slice alone: none */
} test_net_options;

/* A random training step: layers, joins, concats, dropped branches, backward, updates. */
void test_random_net(test_graph *graph, const test_net_options *options, uint64_t *state);

/* An allocator whose n-th allocation fails, and that knows what is live. */
typedef struct failing_alloc {
    dunlin_alloc hooks;
    dunlin_alloc_counter counter;
    uint64_t n_left; /* allocations until the failure */
} failing_alloc;
void failing_alloc_init(failing_alloc *failing, uint64_t n_left);

#endif
