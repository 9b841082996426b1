/*
 * net_support.c - what the tests of networks and ONNX files share.
 */
#include "net_support.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    net_failing *failing = ctx;
    if (failing->n_until_failure > 0 && --failing->n_until_failure == 0) {
        return NULL;
    }
    void *memory = NULL;
    if (posix_memalign(&memory, align, bytes) != 0) {
        return NULL;
    }
    failing->n_live++;
    return memory;
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    net_failing *failing = ctx;
    /* A wrong size shows: the bytes claimed are written. */
    memset(memory, 0xDD, bytes);
    free(memory);
    failing->n_live--;
}

void net_failing_init(net_failing *failing, int64_t n_until_failure)
{
    *failing = (net_failing){
        .hooks = {.ctx = failing, .alloc_fn = failing_alloc, .free_fn = failing_free},
        .n_until_failure = n_until_failure,
    };
}

void net_expect_line(const dunlin_error *error, dunlin_status status, const char *what)
{
    cr_assert_eq(error->status, status, "%s: %s (%s), expected %s", what, error->text,
                 dunlin_status_name(error->status), dunlin_status_name(status));
    cr_assert_not_null(error->subsystem, "%s: no subsystem", what);
    cr_assert_neq(error->text[0], '\0', "%s: no text", what);
    for (const char *c = error->text; *c != '\0'; c++) {
        cr_assert((unsigned char)*c >= 0x20, "%s: the text is not one line", what);
    }
}

const char *net_onnx_path(const char *name, char path[512])
{
    (void)snprintf(path, 512, "%s/%s", DUNLIN_ONNX_DIR, name);
    return path;
}

uint8_t *net_read_file(const char *path, size_t *out_n)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "cannot open %s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    long n = ftell(file);
    cr_assert_geq(n, 0);
    rewind(file);
    /* Exactly as many bytes as there are, so that a sanitizer sees a read past the end. */
    uint8_t *bytes = malloc(n > 0 ? (size_t)n : 1);
    cr_assert_not_null(bytes);
    cr_assert_eq(fread(bytes, 1, (size_t)n, file), (size_t)n);
    (void)fclose(file);
    *out_n = (size_t)n;
    return bytes;
}

void net_write_file(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "cannot create %s", path);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

const char *net_temp_path(const char *name, char path[512])
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(path, 512, "%s/dunlin_net_%ld_%s", folder != NULL ? folder : "/tmp",
                   (long)getpid(), name);
    return path;
}

uint32_t net_find_param(const dunlin_net *net, const char *name)
{
    for (uint32_t i = 0; i < net->n_params; i++) {
        if (strcmp(net->params[i].name, name) == 0) {
            return i;
        }
    }
    cr_assert(false, "no parameter '%s'", name);
    return DUNLIN_NET_NONE;
}

int32_t net_zoo_image(const char *name)
{
    if (strcmp(name, "alexnet") == 0) {
        return 63;
    }
    if (strcmp(name, "inception_v3_aux") == 0) {
        return 299;
    }
    return strcmp(name, "inception_v3") == 0 ? 75 : 32;
}

float net_formula(const char *name, int64_t i)
{
    int64_t length = (int64_t)strlen(name);
    return (float)((7 * i + 13 * length) % 101 - 50) / 64.0f;
}

static void expect_equal_shapes(const dunlin_shape *a, const dunlin_shape *b, const char *name)
{
    cr_assert_eq(a->n_dims, b->n_dims, "%s", name);
    for (int32_t i = 0; i < a->n_dims; i++) {
        cr_assert_eq(a->dims[i], b->dims[i], "%s", name);
    }
}

static void expect_equal_nodes(const dunlin_net_node *a, const dunlin_net_node *b)
{
    cr_assert_str_eq(a->name, b->name);
    cr_assert_eq(a->kind, b->kind, "%s", a->name);
    cr_assert_eq(a->n_inputs, b->n_inputs, "%s", a->name);
    cr_assert_eq(a->n_params, b->n_params, "%s", a->name);
    if (a->kind == DUNLIN_OP_CONV) {
        cr_assert_eq(memcmp(&a->u.conv, &b->u.conv, sizeof a->u.conv), 0, "%s", a->name);
    } else if (a->kind == DUNLIN_OP_MAX_POOL || a->kind == DUNLIN_OP_AVERAGE_POOL) {
        const dunlin_net_pool *p = &a->u.pool;
        const dunlin_net_pool *q = &b->u.pool;
        cr_assert(p->kernel_h == q->kernel_h && p->kernel_w == q->kernel_w &&
                  p->stride_h == q->stride_h && p->stride_w == q->stride_w);
        cr_assert(p->pad_top == q->pad_top && p->pad_left == q->pad_left &&
                  p->pad_bottom == q->pad_bottom && p->pad_right == q->pad_right);
        cr_assert(p->is_ceil == q->is_ceil, "%s", a->name);
        cr_assert(a->kind == DUNLIN_OP_MAX_POOL || p->counts_padding == q->counts_padding);
    } else if (a->kind == DUNLIN_OP_BATCH_NORM) {
        cr_assert_eq(a->u.batch_norm.eps, b->u.batch_norm.eps);
        cr_assert_eq(a->u.batch_norm.momentum, b->u.batch_norm.momentum);
    } else if (a->kind == DUNLIN_OP_CLIP) {
        cr_assert_eq(a->u.clip.low, b->u.clip.low);
        cr_assert_eq(a->u.clip.high, b->u.clip.high);
    } else if (a->kind == DUNLIN_OP_DROPOUT) {
        cr_assert_float_eq(a->u.dropout.ratio, b->u.dropout.ratio, 1e-6F);
        cr_assert_eq(a->u.dropout.is_whole, b->u.dropout.is_whole);
    } else if (a->kind == DUNLIN_OP_ATTENTION) {
        const dunlin_net_attention *p = &a->u.attention;
        const dunlin_net_attention *q = &b->u.attention;
        cr_assert(p->heads == q->heads && p->kv_heads == q->kv_heads, "%s", a->name);
        cr_assert(p->has_mask == q->has_mask && p->is_causal == q->is_causal, "%s", a->name);
        cr_assert_eq(p->scale, q->scale, "%s", a->name);
    }
}

void net_expect_equal(const dunlin_net *a, const dunlin_net *b)
{
    cr_assert_eq(a->n_nodes, b->n_nodes, "%zu nodes, the last '%s'; not %zu, the last '%s'",
                 b->n_nodes, b->nodes[b->n_nodes - 1].name, a->n_nodes,
                 a->nodes[a->n_nodes - 1].name);
    cr_assert_eq(a->n_values, b->n_values);
    cr_assert_eq(a->n_params, b->n_params);
    for (size_t i = 0; i < a->n_nodes; i++) {
        expect_equal_nodes(&a->nodes[i], &b->nodes[i]);
        for (uint32_t j = 0; j < a->nodes[i].n_inputs; j++) {
            cr_assert_str_eq(a->values[a->nodes[i].inputs[j]].name,
                             b->values[b->nodes[i].inputs[j]].name);
        }
        const dunlin_net_value *x = &a->values[a->nodes[i].output];
        const dunlin_net_value *y = &b->values[b->nodes[i].output];
        cr_assert_str_eq(x->name, y->name);
        cr_assert_eq(x->layout, y->layout);
        cr_assert_eq(x->n_consumers, y->n_consumers);
        expect_equal_shapes(&x->shape, &y->shape, x->name);
    }
    for (size_t i = 0; i < a->n_params; i++) {
        const dunlin_net_param *p = &a->params[i];
        const dunlin_net_param *q = &b->params[i];
        cr_assert_str_eq(p->name, q->name);
        cr_assert_eq(p->role, q->role, "%s", p->name);
        cr_assert_eq(p->layout, q->layout, "%s", p->name);
        cr_assert_eq(p->n_elements, q->n_elements, "%s", p->name);
        expect_equal_shapes(&p->shape, &q->shape, p->name);
    }
}
