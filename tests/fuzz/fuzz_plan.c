/*
 * fuzz_plan.c - any bytes as a kept plan of a small training step: refused in one line, or a plan
 * that the verifier passes and that is written again to the same bytes. If the first byte is odd,
 * key and checksum are corrected first, so that the checks after them are reached.
 */
#include <mem/store.h>
#include <mem/support.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { W, X, Y1, Y2, DY2, DY1, DW, LOSS, N_TENSORS };
enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };
enum { READ = DUNLIN_MEM_READ, WRITE = DUNLIN_MEM_WRITE, ADD = DUNLIN_MEM_ACCUMULATE };

#define BATCHED(of, bytes)                                                                         \
    {                                                                                              \
        .name = #of, .sample_bytes = (bytes), .mem_class = DUNLIN_MEM_ACTIVATION,                  \
        .parent = DUNLIN_MEM_NONE                                                                  \
    }
#define FIXED_SIZE(of, bytes, of_class, persists)                                                  \
    {                                                                                              \
        .name = #of, .fixed_bytes = (bytes), .mem_class = (of_class), .is_persistent = (persists), \
        .parent = DUNLIN_MEM_NONE                                                                  \
    }
static const dunlin_mem_tensor tensors[N_TENSORS] = {
    [W] = FIXED_SIZE(w, 100, DUNLIN_MEM_WEIGHT, true),
    [X] = BATCHED(x, 64),
    [Y1] = BATCHED(y1, 128),
    [Y2] = BATCHED(y2, 128),
    [DY2] = BATCHED(dy2, 128),
    [DY1] = BATCHED(dy1, 128),
    [DW] = FIXED_SIZE(dw, 100, DUNLIN_MEM_ACCUMULATOR, false),
    [LOSS] = FIXED_SIZE(loss, 24, DUNLIN_MEM_ACCUMULATOR, false),
};

static const dunlin_mem_access input_touches[] = {{X, WRITE, MAP}};
static const dunlin_mem_access first_touches[] = {{X, READ, MAP}, {W, READ, MAP}, {Y1, WRITE, MAP}};
static const dunlin_mem_access second_touches[] = {{Y1, READ, MAP}, {Y2, WRITE, MAP}};
static const dunlin_mem_access loss_touches[] = {
    {Y2, READ, MAP | REDUCE}, {DY2, WRITE, MAP}, {LOSS, ADD, REDUCE}};
static const dunlin_mem_access back_touches[] = {
    {DY2, READ, MAP}, {Y1, READ, MAP}, {DY1, WRITE, MAP}};
static const dunlin_mem_access grad_touches[] = {
    {X, READ, REDUCE}, {DY1, READ, REDUCE}, {DW, ADD, REDUCE}};
static const dunlin_mem_access update_touches[] = {{DW, READ, FIXED},
                                                   {W, DUNLIN_MEM_UPDATE, FIXED}};

#define VARIANT(list, write, read)                                                                 \
    {                                                                                              \
        .accesses = (list), .n_accesses = sizeof(list) / sizeof(list)[0], .cost_fixed_ns = 10,     \
        .cost_sample_ns = 3, .in_place_write = (write), .in_place_read = (read)                    \
    }
static const dunlin_mem_variant variants[][2] = {
    {VARIANT(input_touches, -1, -1)},
    {VARIANT(first_touches, -1, -1)},
    {VARIANT(second_touches, 1, 0)},
    {VARIANT(loss_touches, 1, 0)},
    {VARIANT(back_touches, 2, 0), VARIANT(back_touches, -1, -1)},
    {{.accesses = grad_touches,
      .n_accesses = 3,
      .cost_fixed_ns = 20,
      .workspace_fixed_bytes = 64,
      .workspace_sample_bytes = 32,
      .in_place_write = -1,
      .in_place_read = -1}},
    {{.accesses = update_touches,
      .n_accesses = 2,
      .cost_fixed_ns = 5,
      .in_place_write = -1,
      .in_place_read = -1}},
};
static const dunlin_mem_op ops[] = {
    {.name = "input",
     .parts = MAP,
     .may_recompute = true,
     .variants = variants[0],
     .n_variants = 1},
    {.name = "first",
     .parts = MAP,
     .may_recompute = true,
     .variants = variants[1],
     .n_variants = 1},
    {.name = "second",
     .parts = MAP,
     .may_recompute = true,
     .variants = variants[2],
     .n_variants = 1},
    {.name = "loss", .parts = MAP | REDUCE, .variants = variants[3], .n_variants = 1},
    {.name = "back", .parts = MAP, .may_recompute = true, .variants = variants[4], .n_variants = 2},
    {.name = "grad", .parts = REDUCE, .variants = variants[5], .n_variants = 1},
    {.name = "update", .parts = FIXED, .variants = variants[6], .n_variants = 1},
};
static const dunlin_mem_graph graph = {
    .tensors = tensors, .n_tensors = N_TENSORS, .ops = ops, .n_ops = sizeof ops / sizeof ops[0]};

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static void put(uint8_t *to, uint64_t number, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        to[i] = (uint8_t)(number >> (8 * i));
    }
}

/* What is written is what was read. */
typedef struct comparison {
    const uint8_t *bytes;
    size_t n, at;
} comparison;

static dunlin_status compare(void *ctx, const void *bytes, size_t n)
{
    comparison *to = ctx;
    require(n <= to->n - to->at && memcmp(to->bytes + to->at, bytes, n) == 0);
    to->at += n;
    return DUNLIN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    const dunlin_plan_options options = {.batch = 8, .alloc = counter.hooks};
    dunlin_error error = {0};
    require(dunlin__graph_check(&graph, options.batch, NULL, &error) == DUNLIN_OK);
    const size_t n = size - 1;
    uint8_t *bytes = malloc(n > 0 ? n : 1);
    require(bytes != NULL);
    memcpy(bytes, data + 1, n);
    if (data[0] % 2 != 0 && n >= 24) {
        put(bytes + 12, dunlin__plan_key(&graph, &options), 8);
        put(bytes + n - 4, dunlin__crc32(0, bytes, n - 4), 4);
    }
    dunlin_plan *plan = NULL;
    const dunlin_status status = dunlin__plan_read(&graph, &options, bytes, n, &plan, &error);
    require((plan != NULL) == (status == DUNLIN_OK));
    if (plan != NULL) {
        require(dunlin__plan_verify(&graph, plan, NULL, &error) == DUNLIN_OK);
        comparison with = {.bytes = bytes, .n = n};
        require(dunlin__plan_write(&graph, &options, plan, compare, &with) == DUNLIN_OK);
        require(with.at == n);
        dunlin__plan_destroy(plan);
    } else {
        require(error.status == status && error.text[0] != '\0' &&
                strchr(error.text, '\n') == NULL);
    }
    free(bytes);
    require(counter.now_bytes == 0);
    return 0;
}
