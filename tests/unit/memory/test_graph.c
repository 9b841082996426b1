/*
 * test_graph.c - what an abstract step may look like, and what is a barrier.
 */
#include "planner/graphs.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <string.h>

enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };

/* Checks a graph, frees it, and compares the status and a word of the text. */
static void expect(test_graph *graph, uint64_t batch, dunlin_status status, const char *word)
{
    dunlin_error error = {0};
    cr_assert_eq(dunlin__graph_check(&graph->graph, batch, NULL, &error), status, "%s", error.text);
    if (status != DUNLIN_OK) {
        cr_assert_eq(error.status, status);
        cr_assert_not_null(strstr(error.text, word), "no \"%s\" in: %s", word, error.text);
    }
    test_graph_free(graph);
}

/* x -> y with a weight: the smallest graph that is one. */
typedef struct {
    test_graph *graph;
    uint32_t x, y, w, sum;
} small;

static small make_small(void)
{
    small made = {.graph = test_graph_new()};
    made.x = test_batched(made.graph, "x", 64, DUNLIN_MEM_INPUT);
    made.y = test_batched(made.graph, "y", 64, DUNLIN_MEM_ACTIVATION);
    made.w = test_persistent(made.graph, "w", 100, DUNLIN_MEM_WEIGHT);
    made.sum = test_fixed(made.graph, "sum", 100, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(made.graph, "input", MAP, "w", made.x);
    TEST_OP(made.graph, "layer", MAP, "rrw", made.x, made.w, made.y);
    TEST_OP(made.graph, "add_up", REDUCE, "ra", made.y, made.sum);
    TEST_OP(made.graph, "apply", FIXED, "ru", made.sum, made.w);
    return made;
}

Test(graph, a_small_step_passes)
{
    expect(make_small().graph, 8, DUNLIN_OK, "");
}

Test(graph, class_names)
{
    for (int c = 0; c < DUNLIN_MEM_N_CLASSES; c++) {
        cr_assert_str_neq(dunlin__mem_class_name((dunlin_mem_class)c), "unknown");
    }
    cr_assert_str_eq(dunlin__mem_class_name(DUNLIN_MEM_WEIGHT), "weights");
    cr_assert_str_eq(dunlin__mem_class_name(DUNLIN_MEM_WORKSPACE), "workspace");
    cr_assert_str_eq(dunlin__mem_class_name((dunlin_mem_class)99), "unknown");
}

Test(graph, wrong_tensors_are_refused)
{
    small at = make_small();
    expect(at.graph, 0, DUNLIN_ARGUMENT, "0 samples");
    at = make_small();
    at.graph->graph.n_ops = 0;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "0 ops");
    at = make_small();
    at.graph->tensors[at.x].fixed_bytes = 4;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor x");
    at = make_small();
    at.graph->tensors[at.y].sample_bytes = 0;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor y");
    at = make_small();
    at.graph->tensors[at.x].is_persistent = true;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "persistent");
    at = make_small();
    at.graph->tensors[at.x].mem_class = (dunlin_mem_class)50;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "class 50");
    at = make_small();
    at.graph->tensors[at.x].sample_bytes = UINT64_MAX / 4;
    expect(at.graph, 8, DUNLIN_OVERFLOW, "tensor x");
    at = make_small();
    at.graph->variants[1][0].workspace_sample_bytes = UINT64_MAX / 4;
    expect(at.graph, 8, DUNLIN_OVERFLOW, "op layer");
    at = make_small();
    at.graph->variants[1][0].cost_sample_ns = UINT64_MAX / 4;
    expect(at.graph, 8, DUNLIN_OVERFLOW, "op layer");
}

Test(graph, wrong_parts_are_refused)
{
    small at = make_small();
    test_part(at.graph, "tail", at.y, 32, 32);
    expect(at.graph, 1, DUNLIN_OK, "");
    at = make_small();
    test_part(at.graph, "tail", at.y, 33, 32);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor tail");
    at = make_small();
    test_part(at.graph, "tail", at.y, UINT64_MAX, 32);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor tail");
    at = make_small();
    uint32_t part = test_part(at.graph, "tail", at.y, 0, 32);
    at.graph->tensors[part].parent = 999;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "parent 999");
    at = make_small();
    part = test_part(at.graph, "tail", at.y, 0, 32);
    at.graph->tensors[part].parent = at.graph->graph.n_tensors; /* the first that is none */
    expect(at.graph, 1, DUNLIN_ARGUMENT, "is not one of");
    at = make_small();
    part = test_part(at.graph, "tail", at.y, 0, 32);
    at.graph->tensors[at.y].parent = part;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "part of itself");
    at = make_small();
    part = test_part(at.graph, "tail", at.y, 0, 32);
    at.graph->tensors[part].parent = at.sum;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "another kind");
}

Test(graph, wrong_accesses_are_refused)
{
    small at = make_small();
    TEST_OP(at.graph, "odd", MAP | FIXED, "r", at.x);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "op odd");
    at = make_small();
    TEST_OP(at.graph, "odd", MAP, "r", 77);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor 77");
    at = make_small();
    TEST_OP(at.graph, "odd", MAP, "r", at.graph->graph.n_tensors); /* the first that is none */
    expect(at.graph, 1, DUNLIN_ARGUMENT, "is not one of");
    at = make_small();
    TEST_OP(at.graph, "odd", FIXED, "r", at.x);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "op is fixed");
    at = make_small();
    TEST_OP(at.graph, "odd", MAP, "u", at.w);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor w");
    at = make_small();
    TEST_OP(at.graph, "odd", FIXED, "w", at.w);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "only be updated");
    at = make_small();
    TEST_OP(at.graph, "odd", FIXED, "u", at.sum);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor sum");
    at = make_small();
    TEST_OP(at.graph, "odd", MAP, "w", at.sum);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "only a fixed op");
    at = make_small();
    TEST_OP(at.graph, "odd", REDUCE, "w", at.y);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "only a map part");
    at = make_small();
    TEST_OP(at.graph, "odd", REDUCE, "a", at.y);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "nothing can be accumulated");
    at = make_small();
    TEST_OP(at.graph, "odd", FIXED, "a", at.sum);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor sum");
    at = make_small();
    TEST_OP(at.graph, "odd", MAP, "dr", at.x);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "parts that the op does not have");
    at = make_small();
    at.graph->variants[3][0].workspace_sample_bytes = 8;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "op apply is fixed but has 8 bytes of workspace");
    at = make_small();
    at.graph->ops[2].may_recompute = true;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "no map part");
    at = make_small();
    test_in_place(at.graph, 1, 0, 2);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "op layer");
    at = make_small();
    test_in_place(at.graph, 1, 2, -1);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "in-place");
    at = make_small();
    at.graph->ops[1].n_variants = 2;
    at.graph->variants[1][1].n_accesses = 2; /* reads as the first does, but writes nothing */
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor y is changed by one variant");
}

Test(graph, wrong_orders_are_refused)
{
    test_graph *graph = test_graph_new();
    uint32_t x = test_batched(graph, "x", 4, DUNLIN_MEM_INPUT);
    uint32_t y = test_batched(graph, "y", 4, DUNLIN_MEM_ACTIVATION);
    TEST_OP(graph, "layer", MAP, "rw", x, y);
    TEST_OP(graph, "input", MAP, "w", x);
    expect(graph, 1, DUNLIN_ARGUMENT, "op layer reads tensor x before it is written");

    small at = make_small();
    TEST_OP(at.graph, "more", REDUCE, "ra", at.y, at.sum);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "before op more has added to it");

    at = make_small();
    TEST_OP(at.graph, "reset", FIXED, "w", at.sum);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "accumulated by op add_up and written by op reset");
}

Test(graph, a_parent_is_read_when_all_its_parts_are_there)
{
    for (int is_complete = 0; is_complete < 2; is_complete++) {
        test_graph *graph = test_graph_new();
        uint32_t whole = test_batched(graph, "whole", 8, DUNLIN_MEM_ACTIVATION);
        uint32_t left = test_part(graph, "left", whole, 0, 4);
        uint32_t right = test_part(graph, "right", whole, 4, 4);
        uint32_t sum = test_fixed(graph, "sum", 8, DUNLIN_MEM_ACCUMULATOR);
        TEST_OP(graph, "a", MAP, "w", left);
        if (is_complete != 0) {
            TEST_OP(graph, "b", MAP, "w", right);
        }
        TEST_OP(graph, "use", REDUCE, "ra", whole, sum);
        if (is_complete == 0) {
            TEST_OP(graph, "b", MAP, "w", right);
        }
        expect(graph, 3, is_complete != 0 ? DUNLIN_OK : DUNLIN_ARGUMENT, "tensor whole");
    }
}

static void expect_barrier(test_graph *graph, uint32_t op)
{
    uint32_t barrier = 12345;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__graph_check(&graph->graph, 4, NULL, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin__graph_is_sliceable(&graph->graph, &barrier), op == DUNLIN_MEM_NONE);
    cr_assert_eq(barrier, op);
    cr_assert_eq(dunlin__graph_is_sliceable(&graph->graph, NULL), op == DUNLIN_MEM_NONE);
    test_graph_free(graph);
}

Test(graph, what_is_a_barrier)
{
    /* Accumulation and an update at the end are none. */
    expect_barrier(make_small().graph, DUNLIN_MEM_NONE);

    /* A map that reads the sum itself, or what a fixed op made of it, directly or not. */
    small at = make_small();
    uint32_t z = test_batched(at.graph, "z", 4, DUNLIN_MEM_ACTIVATION);
    expect_barrier(at.graph, (TEST_OP(at.graph, "late", MAP, "rrw", at.y, at.sum, z)));

    at = make_small();
    z = test_batched(at.graph, "z", 4, DUNLIN_MEM_ACTIVATION);
    uint32_t mean = test_fixed(at.graph, "mean", 4, DUNLIN_MEM_SAVED);
    uint32_t scale = test_fixed(at.graph, "scale", 4, DUNLIN_MEM_SAVED);
    TEST_OP(at.graph, "finish", FIXED, "rw", at.sum, mean);
    TEST_OP(at.graph, "invert", FIXED, "rw", mean, scale);
    expect_barrier(at.graph, (TEST_OP(at.graph, "norm", MAP, "rrw", at.y, scale, z)));

    /* A read of the new weights in the same step. */
    at = make_small();
    z = test_batched(at.graph, "z", 4, DUNLIN_MEM_ACTIVATION);
    expect_barrier(at.graph, (TEST_OP(at.graph, "again", MAP, "rrw", at.x, at.w, z)));

    /* Weights packed beforehand are none; packed again after an update they are. */
    test_graph *graph = test_graph_new();
    uint32_t w = test_persistent(graph, "w", 8, DUNLIN_MEM_WEIGHT);
    uint32_t packed = test_fixed(graph, "packed", 8, DUNLIN_MEM_SAVED);
    uint32_t x = test_batched(graph, "x", 4, DUNLIN_MEM_INPUT);
    uint32_t sum = test_fixed(graph, "sum", 8, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "pack", FIXED, "rw", w, packed);
    TEST_OP(graph, "input", MAP, "w", x);
    TEST_OP(graph, "use", MAP | REDUCE, "rra", x, packed, sum);
    TEST_OP(graph, "update", FIXED, "ru", sum, w);
    cr_assert(dunlin__graph_is_sliceable(&graph->graph, NULL));
    TEST_OP(graph, "repack", FIXED, "rw", w, packed);
    uint32_t y = test_batched(graph, "y", 4, DUNLIN_MEM_ACTIVATION);
    expect_barrier(graph, (TEST_OP(graph, "use2", MAP, "rrw", x, packed, y)));

    /* A part of a sum counts as the sum. */
    graph = test_graph_new();
    sum = test_fixed(graph, "sums", 8, DUNLIN_MEM_ACCUMULATOR);
    uint32_t left = test_part(graph, "left", sum, 0, 4);
    x = test_batched(graph, "x", 4, DUNLIN_MEM_INPUT);
    y = test_batched(graph, "y", 4, DUNLIN_MEM_ACTIVATION);
    TEST_OP(graph, "input", MAP, "w", x);
    TEST_OP(graph, "add_up", REDUCE, "ra", x, sum);
    expect_barrier(graph, (TEST_OP(graph, "late", MAP, "rrw", x, left, y)));
}

Test(graph, tensors_of_a_slice)
{
    small at = make_small();
    uint32_t sums = test_per_slice(at.graph, "sums", 64);
    uint32_t stats = test_per_slice(at.graph, "stats", 64);
    uint32_t z = test_batched(at.graph, "z", 64, DUNLIN_MEM_ACTIVATION);
    TEST_OP(at.graph, "gather", MAP, "rw", at.y, sums);
    TEST_OP(at.graph, "finish", MAP, "rw", sums, stats);
    expect_barrier(at.graph,
                   (TEST_OP(at.graph, "norm", MAP, "rrw", at.y, stats, z), DUNLIN_MEM_NONE));
    at = make_small();
    sums = test_per_slice(at.graph, "sums", 64);
    TEST_OP(at.graph, "gather", MAP, "rw", at.y, sums);
    cr_expect(dunlin__graph_is_per_slice(&at.graph->graph));
    TEST_OP(at.graph, "late", FIXED, "r", sums);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "slice, but the op is fixed");
    at = make_small();
    cr_expect_not(dunlin__graph_is_per_slice(&at.graph->graph));
    sums = test_per_slice(at.graph, "sums", 64);
    TEST_OP(at.graph, "gather", REDUCE, "ra", at.y, sums);
    expect(at.graph, 1, DUNLIN_ARGUMENT, "not a fixed tensor of this step");
    at = make_small();
    at.graph->tensors[at.x].is_per_slice = true;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor x is of one slice");
    at = make_small();
    at.graph->tensors[at.w].is_per_slice = true;
    expect(at.graph, 1, DUNLIN_ARGUMENT, "tensor w is of one slice");
}
