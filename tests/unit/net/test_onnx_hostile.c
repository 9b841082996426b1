/*
 * test_onnx_hostile.c - files that say absurd things: a million nodes, names of a megabyte, sizes
 * near 2^31 and 2^63, lengths beyond the file. One line each, within 64 MiB of the hooks' memory,
 * none of it left.
 */
#include "net_support.h"

#include <criterion/criterion.h>

#include <convert/read/onnx.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(onnx_hostile, .timeout = 120);

#define MOST_BYTES (UINT64_C(64) << 20)

/* --- a file in the making --- */

typedef struct bytes {
    uint8_t *at;
    size_t n, capacity;
} bytes;

static void put(bytes *out, const void *from, size_t n)
{
    if (out->n + n > out->capacity) {
        out->capacity = 2 * (out->n + n);
        out->at = realloc(out->at, out->capacity);
        cr_assert_not_null(out->at);
    }
    if (n > 0) {
        memcpy(out->at + out->n, from, n);
    }
    out->n += n;
}

static void put_varint(bytes *out, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        put(out, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_number(bytes *out, uint32_t field, uint64_t value)
{
    put_varint(out, field << 3);
    put_varint(out, value);
}

static void put_bytes(bytes *out, uint32_t field, const void *from, size_t n)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, n);
    put(out, from, n);
}

static void put_text(bytes *out, uint32_t field, const char *text)
{
    put_bytes(out, field, text, strlen(text));
}

/* The inner message goes into the outer one, and is empty again. */
static void put_message(bytes *out, uint32_t field, bytes *inner)
{
    put_bytes(out, field, inner->at, inner->n);
    inner->n = 0;
}

typedef struct file {
    bytes graph, node, inner, innermost, whole;
} file;

static void add_port(file *f, uint32_t field, const char *name, const uint64_t *dims, int n_dims)
{
    bytes shape = {0};
    for (int i = 0; i < n_dims; i++) {
        if (dims[i] > 0) {
            put_number(&f->innermost, 1, dims[i]);
        } else {
            put_text(&f->innermost, 2, "N");
        }
        put_message(&shape, 1, &f->innermost);
    }
    put_number(&f->innermost, 1, 1);
    put_message(&f->innermost, 2, &shape);
    put_text(&f->node, 1, name);
    put_message(&f->inner, 1, &f->innermost);
    put_message(&f->node, 2, &f->inner);
    put_message(&f->graph, field, &f->node);
    free(shape.at);
}

static void add_node(file *f, const char *op, const char *input, const char *output)
{
    put_text(&f->node, 1, input);
    put_text(&f->node, 2, output);
    put_text(&f->node, 4, op);
    put_message(&f->graph, 1, &f->node);
}

/* An initialiser of int64 (7) or float (1) with 64 bytes of zeros, or these integers. */
static void add_tensor(file *f, const char *name, int type, const uint64_t *dims, int n_dims,
                       const int64_t *items)
{
    static const uint8_t zeros[64];
    for (int i = 0; i < n_dims; i++) {
        put_number(&f->node, 1, dims[i]);
    }
    put_number(&f->node, 2, (uint64_t)type);
    put_text(&f->node, 8, name);
    if (items != NULL) {
        put_bytes(&f->node, 9, items, (size_t)dims[0] * sizeof *items);
    } else {
        put_bytes(&f->node, 9, zeros, sizeof zeros);
    }
    put_message(&f->graph, 5, &f->node);
}

static void begin(file *f)
{
    const uint64_t row[] = {0, 4};
    *f = (file){.graph = {0}};
    add_port(f, 11, "x", row, 2);
    add_port(f, 12, "y", row, 2);
}

/* Reads it, and frees it. */
static void expect_line(file *f, dunlin_status status, const char *text)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_net net;
    dunlin_error error = {0};
    int32_t n_issues = 0;
    put_number(&f->whole, 1, 8);
    put_number(&f->inner, 2, 17);
    put_message(&f->whole, 8, &f->inner);
    put_message(&f->whole, 7, &f->graph);
    const dunlin_onnx_input input = {.place = {.bytes = f->whole.at, .n_bytes = f->whole.n},
                                     .alloc = &counter.hooks};
    const dunlin_status got = dunlin__onnx_read(&input, &n_issues, &net, &error);
    if (got == DUNLIN_OK) {
        dunlin__net_free(&net);
    } else {
        net_expect_line(&error, got, text);
    }
    cr_expect_eq(got, status, "%s: %s", text, error.text);
    cr_expect_not_null(strstr(error.text, text), "'%s' lacks '%s'", error.text, text);
    cr_expect_leq(counter.peak_bytes, MOST_BYTES, "%s: %" PRIu64 " bytes", text,
                  counter.peak_bytes);
    cr_expect_eq(counter.now_bytes, 0, "%s: leaks", text);
    free(f->graph.at);
    free(f->node.at);
    free(f->inner.at);
    free(f->innermost.at);
    free(f->whole.at);
}

/* --- too many of something --- */

enum { MILLION = 1000000, MOST_NODES = 65536 };

/* A chain of `n` nodes from x to y; with `is_cycle` its first reads its last. */
static void add_chain(file *f, const char *op, int n, bool is_cycle)
{
    char from[16];
    char to[16];
    for (int i = 0; i < n; i++) {
        (void)snprintf(from, sizeof from, "v%d", i > 0 ? i - 1 : n - 2);
        (void)snprintf(to, sizeof to, "v%d", i);
        add_node(f, op, i == 0 && !is_cycle ? "x" : from, i + 1 < n ? to : "y");
    }
}

Test(onnx_hostile, a_million_nodes)
{
    file f;
    begin(&f);
    add_chain(&f, "Relu", MILLION, false);
    expect_line(&f, DUNLIN_LIMIT, "too many nodes (limit 65536)");
    begin(&f);
    add_chain(&f, "Tanh", MOST_NODES, false);
    expect_line(&f, DUNLIN_OK, "");
    begin(&f);
    add_chain(&f, "Relu", MOST_NODES, true);
    expect_line(&f, DUNLIN_MODEL, "the graph has a cycle: Relu ");
    begin(&f);
    add_chain(&f, "Odd", MOST_NODES, false);
    expect_line(&f, DUNLIN_UNSUPPORTED, "Odd 'v0': the operator is not supported (1 in all)");
}

Test(onnx_hostile, a_million_of_each)
{
    const uint64_t row[] = {0, 4};
    const uint64_t sixteen[] = {16};
    file f;
    char name[16];
    begin(&f);
    for (int i = 0; i < MILLION; i++) {
        put_text(&f.node, 1, "x");
    }
    put_text(&f.node, 2, "y");
    put_text(&f.node, 4, "Concat");
    put_message(&f.graph, 1, &f.node);
    expect_line(&f, DUNLIN_LIMIT, "too many inputs and outputs");
    begin(&f);
    for (int i = 0; i < MILLION; i++) {
        put_text(&f.inner, 1, "a");
        put_message(&f.node, 5, &f.inner);
    }
    put_message(&f.graph, 1, &f.node);
    expect_line(&f, DUNLIN_LIMIT, "too many attributes");
    begin(&f);
    for (int i = 0; i < MILLION; i++) {
        (void)snprintf(name, sizeof name, "t%d", i);
        add_tensor(&f, name, 1, sixteen, 1, NULL);
    }
    expect_line(&f, DUNLIN_LIMIT, "too many tensors");
    /* As many inputs as can be, all of them read. */
    begin(&f);
    for (int i = 0; i < MOST_NODES / 2; i++) {
        (void)snprintf(name, sizeof name, "t%d", i);
        add_port(&f, 11, name, row, 2);
    }
    for (int i = 0; i < MOST_NODES / 2; i++) {
        (void)snprintf(name, sizeof name, "t%d", i);
        put_text(&f.node, 1, name);
    }
    put_text(&f.node, 2, "y");
    put_text(&f.node, 4, "Concat");
    put_message(&f.graph, 1, &f.node);
    expect_line(&f, DUNLIN_UNSUPPORTED, "layers read 32768 inputs; 256 are read at most");
}

Test(onnx_hostile, long_names)
{
    static char name[1 << 20];
    file f;
    memset(name, 'n', sizeof name - 1);
    begin(&f);
    add_node(&f, "Relu", "x", name);
    expect_line(&f, DUNLIN_LIMIT, "a name is too long (limit 255)");
    begin(&f);
    name[255] = '\0';
    for (int i = 0; i < MOST_NODES; i++) {
        put_text(&f.node, 1, name);
        put_text(&f.node, 3, name);
        put_text(&f.node, 4, name);
        put_message(&f.graph, 1, &f.node);
    }
    expect_line(&f, DUNLIN_LIMIT, "all names together are too long");
}

/* --- sizes --- */

static const uint64_t near = (UINT64_C(1) << 31) - 1;

/* What an input of these sizes says. */
static void expect_input(uint64_t a, uint64_t b, uint64_t c, const char *text)
{
    const uint64_t dims[] = {0, a, b, c};
    const uint64_t row[] = {0, 4};
    file f = {.graph = {0}};
    add_port(&f, 11, "x", dims, 4);
    add_port(&f, 12, "y", row, 2);
    add_node(&f, "Relu", "x", "y");
    expect_line(&f, DUNLIN_UNSUPPORTED, text);
}

static void expect_weight(uint64_t a, uint64_t b, const char *text)
{
    const uint64_t dims[] = {a, b};
    file f;
    begin(&f);
    add_tensor(&f, "w", 1, dims, 2, NULL);
    put_text(&f.node, 1, "x");
    add_node(&f, "MatMul", "w", "y");
    expect_line(&f, DUNLIN_MODEL, text);
}

Test(onnx_hostile, absurd_sizes)
{
    expect_input(near, near, near, "more than 2147483647 elements");
    expect_input(65536, 65536, 1, "more than 2147483647 elements");
    expect_input(near + 1, 1, 1, "dimension 1 of input 'x' is 2147483648");
    expect_input(1, 1, UINT64_MAX >> 1, "dimension 3 of input 'x' is 9223372036854775807");
    expect_weight(near, near, "tensor 'w' of 4611686014132420609 elements");
    expect_weight(UINT64_C(1) << 62, 4, "larger than any memory");
    expect_weight(UINT64_MAX, 1, "negative dimension");
}

Test(onnx_hostile, absurd_shapes_of_nodes)
{
    static const struct {
        const char *op;
        int64_t items[3];
    } cases[] = {
        {"Reshape", {-1, INT64_C(1) << 62, 4}},
        {"Reshape", {0, INT64_MAX, INT64_MAX}},
        {"Reshape", {0, INT64_MIN, 1}},
        {"Expand", {INT64_C(1) << 31, INT64_C(1) << 31, 4}},
        {"Slice", {INT64_MIN, INT64_MAX, INT64_MIN}},
        {"Unsqueeze", {INT64_MIN, INT64_MAX, 0}},
        {"Squeeze", {INT64_MAX, 1, 1}},
        {"Split", {INT64_MAX, INT64_MAX, 2}},
        {"Tile", {INT64_MAX, INT64_MAX, 2}},
    };
    const uint64_t three[] = {3};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        file f;
        begin(&f);
        add_tensor(&f, "s", 7, three, 1, cases[i].items);
        put_text(&f.node, 1, "x");
        put_text(&f.node, 1, "s");
        put_text(&f.node, 1, "s");
        add_node(&f, cases[i].op, "s", "y");
        expect_line(&f, DUNLIN_UNSUPPORTED, cases[i].op);
    }
}

/* --- lengths beyond the file --- */

Test(onnx_hostile, lengths_beyond_the_file)
{
    const uint64_t lengths[] = {
        2, 1 << 20, UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, UINT64_MAX >> 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (uint32_t field = 1; field < 16; field++) {
            file f;
            begin(&f);
            put_varint(&f.graph, field << 3 | 2);
            put_varint(&f.graph, lengths[i]);
            put(&f.graph, "\x01", 1);
            expect_line(&f, DUNLIN_MODEL, "damaged");
        }
    }
}
