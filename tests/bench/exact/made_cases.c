/*
 * made_cases.c - training steps from layers with sizes and costs of our choosing: forward, loss,
 * backward, updates.
 *
 * Invariant: the order of a step is that of a trainer: layers forward, then backward, each update
 * right after its gradient.
 */
#include "cases.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 40, MAX_FROM = 8 };

typedef enum layer_kind {
    DENSE,  /* weights: backward needs what it read */
    POINT,  /* elementwise: backward needs what it wrote */
    POOL,   /* backward needs indices of its own */
    NORM,   /* over the whole batch: a barrier */
    JOIN,   /* sum of two: backward needs nothing */
    CONCAT, /* two side by side in one tensor */
    N_KINDS
} layer_kind;

typedef struct {
    layer_kind kind;
    uint32_t from[MAX_FROM];
    uint32_t n_from;
    uint32_t y, weight, saved;
    uint32_t grad; /* of y, or NONE so far */
} layer;

typedef struct {
    test_graph *graph;
    layer layers[MAX_LAYERS]; /* 0: the input */
    uint32_t n_layers;
    bool adds_in_place; /* gradients are added where they lie */
} maker;

/* Good until the fourth call from here. */
static const char *label(const char *base, uint32_t index)
{
    static char texts[4][24];
    static uint32_t next;
    char *text = texts[next++ % 4];
    (void)snprintf(text, sizeof texts[0], "%.12s%u", base, (unsigned)index);
    return text;
}

static uint64_t bytes_of(const maker *net, uint32_t tensor)
{
    return net->graph->tensors[tensor].sample_bytes;
}

static uint32_t op(maker *net, const char *name, uint8_t parts, uint64_t cost_us,
                   const char *touches, const uint32_t *tensors)
{
    uint32_t index = test_op(net->graph, name, parts, touches, tensors);
    for (int v = 0; v < 2; v++) {
        net->graph->variants[index][v].cost_fixed_ns = cost_us * 1000;
        net->graph->variants[index][v].cost_sample_ns = 0;
    }
    return index;
}
#define OP(net, name, parts, cost, touches, ...)                                                   \
    op(net, name, parts, cost, touches, (const uint32_t[]){__VA_ARGS__})

static uint64_t cost_of(const maker *net, uint32_t fwd_op)
{
    return net->graph->variants[fwd_op][0].cost_fixed_ns / 1000;
}

static void start(maker *net, test_graph *graph, uint64_t kib)
{
    *net = (maker){.graph = graph, .n_layers = 1};
    net->layers[0].y = test_batched(graph, "x", kib << 10, DUNLIN_MEM_INPUT);
    net->layers[0].grad = DUNLIN_MEM_NONE;
    OP(net, "input", DUNLIN_MEM_MAP, 10, "w", net->layers[0].y);
}

/* --- forward --- */

static void forward_concat(maker *net, layer *made, uint32_t index, uint64_t cost_us)
{
    uint32_t at = 0;
    uint64_t offset = 0;
    for (; at < made->n_from; at++) {
        uint32_t x = net->layers[made->from[at]].y;
        uint32_t part =
            test_part(net->graph, label("part", index), made->y, offset, bytes_of(net, x));
        offset += bytes_of(net, x);
        OP(net, label("copy", index), DUNLIN_MEM_MAP, cost_us, "rw", x, part);
    }
}

static void forward_norm(maker *net, layer *made, uint32_t x, uint32_t index, uint64_t cost_us)
{
    uint32_t sums = test_fixed(net->graph, label("sums", index), 1024, DUNLIN_MEM_ACCUMULATOR);
    made->saved = test_fixed(net->graph, label("stats", index), 1024, DUNLIN_MEM_SAVED);
    OP(net, label("sum", index), DUNLIN_MEM_REDUCE, cost_us, "ra", x, sums);
    OP(net, label("finish", index), DUNLIN_MEM_FIXED, 1, "rw", sums, made->saved);
    OP(net, label("norm", index), DUNLIN_MEM_MAP, cost_us, "rrw", x, made->saved, made->y);
}

/* Adds a layer over earlier ones; returns its number. */
static uint32_t add(maker *net, layer_kind kind, const uint32_t *from, uint32_t n_from,
                    uint64_t kib, uint64_t cost_us)
{
    uint32_t index = net->n_layers++;
    if (index == MAX_LAYERS || n_from > MAX_FROM) {
        abort();
    }
    layer *made = &net->layers[index];
    *made = (layer){.kind = kind, .n_from = n_from, .grad = DUNLIN_MEM_NONE};
    memcpy(made->from, from, n_from * sizeof *from);
    uint32_t x = net->layers[from[0]].y;
    uint64_t bytes = kib << 10;
    if (kind == POINT || kind == NORM || kind == JOIN) {
        bytes = bytes_of(net, x);
    } else if (kind == CONCAT) {
        bytes = bytes_of(net, x) + bytes_of(net, net->layers[made->from[1]].y);
    }
    made->y = test_batched(net->graph, label("y", index), bytes, DUNLIN_MEM_ACTIVATION);
    switch (kind) {
    case DENSE: {
        uint32_t touched[MAX_FROM + 2];
        char touches[MAX_FROM + 3];
        made->weight = test_persistent(net->graph, label("w", index), 4096, DUNLIN_MEM_WEIGHT);
        for (uint32_t i = 0; i < n_from; i++) {
            touched[i] = net->layers[from[i]].y;
            touches[i] = 'r';
        }
        memcpy(&touches[n_from], "rw", 3);
        touched[n_from] = made->weight;
        touched[n_from + 1] = made->y;
        op(net, label("dense", index), DUNLIN_MEM_MAP, cost_us, touches, touched);
        break;
    }
    case POINT: {
        uint32_t made_op =
            OP(net, label("point", index), DUNLIN_MEM_MAP, cost_us, "rw", x, made->y);
        test_in_place(net->graph, made_op, 1, 0);
        break;
    }
    case POOL:
        made->saved = test_batched(net->graph, label("index", index), bytes / 4, DUNLIN_MEM_SAVED);
        OP(net, label("pool", index), DUNLIN_MEM_MAP, cost_us, "rww", x, made->y, made->saved);
        break;
    case NORM:
        forward_norm(net, made, x, index, cost_us);
        break;
    case JOIN: {
        uint32_t z = net->layers[made->from[1]].y;
        uint32_t made_op =
            OP(net, label("join", index), DUNLIN_MEM_MAP, cost_us, "rrw", x, z, made->y);
        test_in_place(net->graph, made_op, 2, 0);
        break;
    }
    case CONCAT:
        forward_concat(net, made, index, cost_us);
        break;
    case N_KINDS:
        break;
    }
    return index;
}
#define ADD(net, kind, kib, cost, ...)                                                             \
    add(net, kind, (const uint32_t[]){__VA_ARGS__},                                                \
        (uint32_t)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)), kib, cost)

/* --- backward --- */

/* The gradient of a layer's input, as an op reading `touched` makes it: alone, or added to what is
 * there. */
static void make_grad(maker *net, uint32_t to, const char *name, uint64_t cost_us,
                      const uint32_t *touched, uint32_t n_touched)
{
    if (to == 0) {
        return;
    }
    uint32_t all[MAX_FROM + 2];
    char touches[MAX_FROM + 3];
    layer *target = &net->layers[to];
    memcpy(all, touched, n_touched * sizeof *all);
    memset(touches, 'r', n_touched);
    bool is_first = target->grad == DUNLIN_MEM_NONE;
    uint32_t n = n_touched;
    if (!is_first && net->adds_in_place) {
        all[n] = target->grad;
        touches[n++] = 'r';
        all[n] = target->grad;
        touches[n++] = 'w';
        touches[n] = '\0';
        op(net, name, DUNLIN_MEM_MAP, cost_us, touches, all);
        return;
    }
    uint32_t dx =
        test_batched(net->graph, label("dx", to), bytes_of(net, target->y), DUNLIN_MEM_GRADIENT);
    all[n] = dx;
    touches[n++] = 'w';
    touches[n] = '\0';
    uint32_t made = op(net, name, DUNLIN_MEM_MAP, cost_us, touches, all);
    test_in_place(net->graph, made, (int32_t)n - 1, 0);
    if (is_first) {
        target->grad = dx;
        return;
    }
    uint32_t sum =
        test_batched(net->graph, label("ds", to), bytes_of(net, target->y), DUNLIN_MEM_GRADIENT);
    made = OP(net, label("sum", to), DUNLIN_MEM_MAP, 5, "rrw", target->grad, dx, sum);
    test_in_place(net->graph, made, 2, 0);
    target->grad = sum;
}
#define MAKE_GRAD(net, to, name, cost, ...)                                                        \
    make_grad(net, to, name, cost, (const uint32_t[]){__VA_ARGS__},                                \
              (uint32_t)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)))

static void backward_dense(maker *net, const layer *made, uint32_t index, uint64_t cost_us)
{
    uint32_t touched[MAX_FROM + 2];
    char touches[MAX_FROM + 3];
    uint32_t dw = test_fixed(net->graph, label("dw", index), 4096, DUNLIN_MEM_ACCUMULATOR);
    for (uint32_t i = 0; i < made->n_from; i++) {
        touched[i] = net->layers[made->from[i]].y;
        touches[i] = 'r';
    }
    memcpy(&touches[made->n_from], "ra", 3);
    touched[made->n_from] = made->grad;
    touched[made->n_from + 1] = dw;
    op(net, label("wgrad", index), DUNLIN_MEM_REDUCE, cost_us, touches, touched);
    for (uint32_t i = 0; i < made->n_from; i++) {
        MAKE_GRAD(net, made->from[i], label("dgrad", index), cost_us, made->grad, made->weight);
    }
    OP(net, label("update", index), DUNLIN_MEM_FIXED, 1, "ru", dw, made->weight);
}

static void backward(maker *net, uint32_t index, uint64_t cost_us)
{
    const layer *made = &net->layers[index];
    uint32_t dy = made->grad;
    const char *name = label("back", index);
    if (dy == DUNLIN_MEM_NONE) {
        return; /* nobody used the value */
    }
    switch (made->kind) {
    case DENSE:
        backward_dense(net, made, index, cost_us);
        break;
    case POINT:
        MAKE_GRAD(net, made->from[0], name, cost_us, dy, made->y);
        break;
    case POOL:
        MAKE_GRAD(net, made->from[0], name, cost_us, dy, made->saved);
        break;
    case NORM: {
        uint32_t x = net->layers[made->from[0]].y;
        uint32_t sums = test_fixed(net->graph, label("dsums", index), 1024, DUNLIN_MEM_ACCUMULATOR);
        OP(net, label("dsum", index), DUNLIN_MEM_REDUCE, cost_us, "rrra", dy, x, made->saved, sums);
        MAKE_GRAD(net, made->from[0], name, cost_us, dy, x, made->saved, sums);
        break;
    }
    case JOIN:
    case CONCAT:
        for (uint32_t i = 0; i < made->n_from; i++) {
            MAKE_GRAD(net, made->from[i], label("back", index), cost_us, dy);
        }
        break;
    case N_KINDS:
        break;
    }
}

static void finish(maker *net)
{
    test_graph *graph = net->graph;
    uint64_t costs[MAX_LAYERS];
    uint32_t n_forward = graph->graph.n_ops;
    for (uint32_t i = 1; i < net->n_layers; i++) {
        costs[i] = 1;
        for (uint32_t k = 0; k < n_forward; k++) {
            const dunlin_mem_variant *variant = &graph->variants[k][0];
            uint32_t written = variant->accesses[variant->n_accesses - 1].tensor;
            if (written == net->layers[i].y || graph->tensors[written].parent == net->layers[i].y ||
                (net->layers[i].kind == POOL && written == net->layers[i].saved)) {
                costs[i] = cost_of(net, k);
            }
        }
    }
    layer *last = &net->layers[net->n_layers - 1];
    uint32_t loss = test_fixed(graph, "loss", 64, DUNLIN_MEM_ACCUMULATOR);
    last->grad = test_batched(graph, "dlogits", bytes_of(net, last->y), DUNLIN_MEM_GRADIENT);
    OP(net, "loss", DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, 5, "rwa", last->y, last->grad, loss);
    for (uint32_t i = net->n_layers - 1; i > 0; i--) {
        backward(net, i, costs[i]);
    }
}

/* --- families --- */

/* Sizes along a chain: even, falling as in a classifier, hourglass, or drawn. */
static uint64_t size_at(uint32_t form, uint32_t i, uint32_t n, uint64_t *state)
{
    uint32_t from_middle = 2 * i > n ? 2 * i - n : n - 2 * i;
    switch (form) {
    case 0:
        return 256;
    case 1:
        return 64 + 512ULL * (n - i) / n;
    case 2:
        return 64 + 512ULL * from_middle / n;
    default:
        return 32 + 16 * test_random_below(state, 40);
    }
}

static void build_chain(test_graph *graph, const exact_case *self)
{
    maker net;
    uint64_t state = self->size;
    start(&net, graph, 128);
    for (uint32_t i = 0; i < self->size; i++) {
        /* The cost is drawn first: the kept optima are of these steps. */
        const uint64_t cost_us = self->form == 3 ? 20 + test_random_below(&state, 200) : 100;
        const uint64_t kib = size_at(self->form, i, self->size, &state);
        ADD(&net, DENSE, kib, cost_us, i);
    }
    finish(&net);
}

/* Dense, norm (form 1), then elementwise: cheap and expensive ops alternate. */
static void build_units(test_graph *graph, const exact_case *self)
{
    maker net;
    uint64_t state = self->size;
    uint32_t at = 0;
    start(&net, graph, 128);
    for (uint32_t i = 0; i < self->size; i++) {
        const uint64_t cost_us = 60 + test_random_below(&state, 200);
        const uint64_t kib = size_at(3, i, self->size, &state);
        at = ADD(&net, DENSE, kib, cost_us, at);
        if (self->form == 1) {
            at = ADD(&net, NORM, 0, 12, at);
        }
        at = ADD(&net, POINT, 0, 8, at);
        if (self->form == 2) {
            at = ADD(&net, POOL, bytes_of(&net, net.layers[at].y) >> 11, 15, at);
        }
    }
    finish(&net);
}

static void build_residual(test_graph *graph, const exact_case *self)
{
    maker net;
    start(&net, graph, 128);
    uint32_t at = ADD(&net, DENSE, 256, 60, 0);
    net.adds_in_place = self->form == 1;
    for (uint32_t i = 0; i < self->size; i++) {
        uint32_t inner = ADD(&net, DENSE, 512, 90, at);
        inner = ADD(&net, POINT, 0, 6, inner);
        inner = ADD(&net, DENSE, 256, 120, inner);
        at = ADD(&net, JOIN, 0, 8, inner, at);
    }
    finish(&net);
}

/* Each layer reads the last `form` before it. */
static void build_reuse(test_graph *graph, const exact_case *self)
{
    maker net;
    uint64_t state = 7 + self->size;
    start(&net, graph, 256);
    net.adds_in_place = true;
    uint32_t all[MAX_FROM];
    for (uint32_t i = 0; i < self->size; i++) {
        uint32_t n_from = 0;
        for (uint32_t j = i >= self->form ? i - self->form + 1 : 0; j <= i; j++) {
            all[n_from++] = j;
        }
        (void)add(&net, DENSE, all, n_from, 64 + 32 * test_random_below(&state, 12),
                  40 * (uint64_t)(i + 1));
    }
    finish(&net);
}

/* Down with pooling, up again; long skips by concatenation or by sum. */
static void build_skips(test_graph *graph, const exact_case *self)
{
    maker net;
    uint32_t skip[MAX_FROM];
    uint32_t at = 0;
    uint64_t kib = 512;
    start(&net, graph, 256);
    for (uint32_t i = 0; i < self->size; i++) {
        at = ADD(&net, DENSE, kib, 120, at);
        skip[i] = at;
        kib /= 2;
        at = ADD(&net, POOL, kib, 20, at);
    }
    at = ADD(&net, DENSE, kib, 80, at);
    for (uint32_t i = self->size; i > 0; i--) {
        kib *= 2;
        at = ADD(&net, DENSE, kib, 100, at);
        at = self->form == 0 ? ADD(&net, JOIN, 0, 10, at, skip[i - 1])
                             : ADD(&net, CONCAT, 0, 10, at, skip[i - 1]);
    }
    (void)ADD(&net, DENSE, 64, 60, at);
    finish(&net);
}

/* Layers of all kinds over one or two of the last few. */
static void build_random(test_graph *graph, const exact_case *self)
{
    maker net;
    uint64_t state = UINT64_C(0x9e3779b9) * (self->form + 1);
    start(&net, graph, 128);
    net.adds_in_place = self->form % 2 == 1;
    for (uint32_t i = 1; i <= self->size; i++) {
        static const layer_kind kinds[] = {DENSE, DENSE, DENSE, POINT, POOL, NORM, CONCAT};
        uint32_t reach = i < 4 ? i : 4;
        uint32_t from = i - 1;
        uint32_t other = i - 1 - (uint32_t)test_random_below(&state, reach);
        uint64_t kib = 32 + 16 * test_random_below(&state, 48);
        uint64_t cost_us = 10 + test_random_below(&state, 300);
        layer_kind kind = i == 1 ? DENSE : kinds[test_random_below(&state, 7)];
        if (kind == DENSE && other != from) {
            (void)ADD(&net, DENSE, kib, cost_us, from, other);
        } else if (kind == CONCAT && other != from) {
            (void)ADD(&net, CONCAT, 0, cost_us / 20 + 1, from, other);
        } else if (kind == DENSE || kind == CONCAT) {
            (void)ADD(&net, DENSE, kib, cost_us, from);
        } else {
            (void)ADD(&net, kind, kib, cost_us / 20 + 1, from);
        }
    }
    finish(&net);
}

const exact_case *exact_made_cases(size_t *out_n)
{
    static const exact_case cases[] = {
        {"chain_short", build_chain, 4, 3},
        {"units_short", build_units, 2, 0},
        {"residual_short", build_residual, 1, 1},
        {"random_short", build_random, 4, 6},
        {"chain_even", build_chain, 7, 0},
        {"chain_falling", build_chain, 7, 1},
        {"chain_hourglass", build_chain, 7, 2},
        {"chain_drawn", build_chain, 7, 3},
        {"chain_even_long", build_chain, 14, 0},
        {"chain_drawn_long", build_chain, 14, 3},
        {"units", build_units, 4, 0},
        {"units_norm", build_units, 3, 1},
        {"units_pool", build_units, 3, 2},
        {"units_norm_long", build_units, 5, 1},
        {"units_long", build_units, 9, 0},
        {"residual", build_residual, 2, 0},
        {"residual_long", build_residual, 4, 1},
        {"reuse", build_reuse, 5, MAX_FROM},
        {"reuse_long", build_reuse, 9, 3},
        {"skips_sum", build_skips, 2, 0},
        {"skips_concat", build_skips, 2, 1},
        {"skips_long", build_skips, 3, 1},
        {"random_a", build_random, 6, 0},
        {"random_b", build_random, 6, 1},
        {"random_c", build_random, 7, 2},
        {"random_d", build_random, 10, 3},
        {"random_e", build_random, 11, 4},
        {"random_f", build_random, 12, 5},
    };
    *out_n = sizeof cases / sizeof cases[0];
    return cases;
}
