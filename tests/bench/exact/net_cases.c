/*
 * net_cases.c - small networks of the usual kinds, as the trainer lowers them: batch 32, fused and
 * not, brought to one "sample" of the whole batch.
 *
 * Invariant: a case is the trainer's own graph but for the scale.
 */
#include "cases.h"
#include "step/lower/lower.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 32 };

/* --- from a network to a case --- */

static void must(dunlin_status status, const dunlin_error *error)
{
    if (status != DUNLIN_OK) {
        (void)fprintf(stderr, "bench_exact: %s\n", error->text);
        abort();
    }
}

static dunlin_mem_variant scaled(const dunlin_mem_op *op, uint32_t index)
{
    dunlin_mem_variant variant = op->variants[index];
    variant.reduce_permille = 0; /* the solver knows one cost an op */
    if (op->parts != DUNLIN_MEM_FIXED) {
        variant.workspace_fixed_bytes += BATCH * variant.workspace_sample_bytes;
        variant.workspace_sample_bytes = 0;
        variant.cost_fixed_ns += BATCH * variant.cost_sample_ns;
        variant.cost_sample_ns = 0;
    }
    return variant;
}

/* The fastest variant alone: which one to take is another question than what to do again. */
static void copy_op(test_graph *graph, const dunlin_mem_op *from)
{
    const uint32_t index = graph->graph.n_ops++;
    dunlin_mem_variant best = scaled(from, 0);
    for (uint32_t v = 1; v < from->n_variants; v++) {
        const dunlin_mem_variant variant = scaled(from, v);
        best = variant.cost_fixed_ns < best.cost_fixed_ns ? variant : best;
    }
    dunlin_mem_access *accesses = &graph->accesses[graph->n_accesses];
    if (graph->n_accesses + best.n_accesses > TEST_MAX_ACCESSES || index >= TEST_MAX_OPS) {
        abort();
    }
    memcpy(accesses, best.accesses, best.n_accesses * sizeof *accesses);
    graph->n_accesses += best.n_accesses;
    best.accesses = accesses;
    graph->variants[index][0] = best;
    graph->ops[index] = *from;
    graph->ops[index].variants = graph->variants[index];
    graph->ops[index].n_variants = 1;
}

/* Names keep pointing into the step, which stays. */
static void copy_scaled(test_graph *graph, const dunlin_mem_graph *from)
{
    if (from->n_tensors > TEST_MAX_TENSORS) {
        abort();
    }
    for (uint32_t t = 0; t < from->n_tensors; t++) {
        dunlin_mem_tensor tensor = from->tensors[t];
        tensor.parent_offset *= tensor.sample_bytes != 0 ? BATCH : 1;
        tensor.sample_bytes *= BATCH;
        graph->tensors[t] = tensor;
    }
    graph->graph.n_tensors = from->n_tensors;
    for (uint32_t i = 0; i < from->n_ops; i++) {
        copy_op(graph, &from->ops[i]);
    }
}

/* Ends the network and lowers its training step; model and step live as long as the program. */
static void lower(test_graph *graph, dunlin_builder *builder, dunlin_value logits, bool is_fused)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_step_graph *step = NULL;
    dunlin_lowered lowered;
    must(dunlin_builder_finish(builder, logits, &model, &error), &error);
    const dunlin_step_build_options options = {
        .mode = DUNLIN_EMIT_TRAIN, .is_fused = is_fused, .has_momentum = true};
    must(dunlin__step_build(&model->net, &options, NULL, &step, &error), &error);
    must(
        dunlin__lower(step, dunlin__kernels_select(NULL), 1, false, &step->alloc, &lowered, &error),
        &error);
    copy_scaled(graph, &lowered.graph);
}

static dunlin_value open_image(dunlin_builder **out_builder, int64_t channels, int64_t side)
{
    if (dunlin_builder_create(NULL, out_builder) != DUNLIN_OK) {
        abort();
    }
    return dunlin_builder_input(*out_builder, "x",
                                &(dunlin_shape){.n_dims = 3, .dims = {channels, side, side}});
}

/* A new name at each call. */
static const char *fresh(const char *base)
{
    static char texts[256][16];
    static uint32_t n;
    if (n == 256) {
        abort();
    }
    (void)snprintf(texts[n], sizeof texts[0], "%.8s%u", base, (unsigned)n);
    return texts[n++];
}

/* --- layers --- */

typedef struct {
    int32_t kernel, stride, groups;
    bool has_norm, has_relu;
} unit_form;

static dunlin_value unit(dunlin_builder *b, dunlin_value x, int32_t channels, unit_form form)
{
    const dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                         .stride = form.stride,
                                         .padding = form.kernel / 2,
                                         .groups = form.groups,
                                         .no_bias = form.has_norm};
    x = dunlin_builder_conv(b, fresh("conv"), x, channels, form.kernel, &options);
    x = form.has_norm ? dunlin_builder_batch_norm(b, fresh("bn"), x) : x;
    return form.has_relu ? dunlin_builder_relu(b, x) : x;
}

static dunlin_value head(dunlin_builder *b, dunlin_value x)
{
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    return dunlin_builder_dense(b, fresh("fc"), x, 10);
}

/* --- networks; form 1: not fused --- */

static void build_lenet(test_graph *graph, const exact_case *self)
{
    dunlin_builder *b = NULL;
    dunlin_value x = open_image(&b, 1, 28);
    x = unit(b, x, 6, (unit_form){.kernel = 5, .has_relu = true});
    x = dunlin_builder_max_pool(b, x, 2, 2, 0);
    x = unit(b, x, 16, (unit_form){.kernel = 5, .has_relu = true});
    x = dunlin_builder_flatten(b, dunlin_builder_max_pool(b, x, 2, 2, 0));
    x = dunlin_builder_relu(b, dunlin_builder_dense(b, "fc1", x, 120));
    x = dunlin_builder_relu(b, dunlin_builder_dense(b, "fc2", x, 84));
    lower(graph, b, dunlin_builder_dense(b, "fc3", x, 10), self->form == 0);
}

static void build_plain(test_graph *graph, const exact_case *self)
{
    dunlin_builder *b = NULL;
    dunlin_value x = open_image(&b, 3, 32);
    int32_t channels = 16;
    for (uint32_t i = 0; i < self->size; i++) {
        x = unit(b, x, channels, (unit_form){.kernel = 3, .has_norm = true, .has_relu = true});
        if (i % 2 == 1) {
            x = dunlin_builder_max_pool(b, x, 2, 2, 0);
            channels *= 2;
        }
    }
    lower(graph, b, head(b, x), self->form == 0);
}

static void build_mobile(test_graph *graph, const exact_case *self)
{
    dunlin_builder *b = NULL;
    dunlin_value x = open_image(&b, 3, 32);
    const int32_t width = 24;
    x = unit(b, x, width, (unit_form){.kernel = 3, .has_norm = true, .has_relu = true});
    for (uint32_t i = 0; i < self->size; i++) {
        const int32_t hidden = 6 * width;
        const dunlin_value input = x;
        x = unit(b, x, hidden, (unit_form){.kernel = 1, .has_norm = true, .has_relu = true});
        x = unit(b, x, hidden,
                 (unit_form){.kernel = 3, .groups = hidden, .has_norm = true, .has_relu = true});
        x = unit(b, x, width, (unit_form){.kernel = 1, .has_norm = true});
        x = dunlin_builder_add(b, input, x);
    }
    lower(graph, b, head(b, x), self->form == 0);
}

static void build_resnet(test_graph *graph, const exact_case *self)
{
    dunlin_builder *b = NULL;
    dunlin_value x = open_image(&b, 3, 32);
    x = unit(b, x, 32, (unit_form){.kernel = 3, .has_norm = true, .has_relu = true});
    for (uint32_t i = 0; i < self->size; i++) {
        const dunlin_value input = x;
        x = unit(b, x, 32, (unit_form){.kernel = 3, .has_norm = true, .has_relu = true});
        x = unit(b, x, 32, (unit_form){.kernel = 3, .has_norm = true});
        x = dunlin_builder_relu(b, dunlin_builder_add(b, x, input));
    }
    lower(graph, b, head(b, x), self->form == 0);
}

static void build_fire(test_graph *graph, const exact_case *self)
{
    dunlin_builder *b = NULL;
    dunlin_value x = open_image(&b, 3, 32);
    x = unit(b, x, 32, (unit_form){.kernel = 3, .has_relu = true});
    for (uint32_t i = 0; i < self->size; i++) {
        dunlin_value branches[2];
        x = unit(b, x, 8, (unit_form){.kernel = 1, .has_relu = true});
        branches[0] = unit(b, x, 32, (unit_form){.kernel = 1, .has_relu = true});
        branches[1] = unit(b, x, 32, (unit_form){.kernel = 3, .has_relu = true});
        x = dunlin_builder_max_pool(b, dunlin_builder_concat(b, branches, 2), 2, 2, 0);
    }
    lower(graph, b, head(b, x), self->form == 0);
}

static void build_growing(test_graph *graph, const exact_case *self)
{
    dunlin_builder *b = NULL;
    dunlin_value x = open_image(&b, 3, 32);
    x = unit(b, x, 16, (unit_form){.kernel = 3});
    for (uint32_t i = 0; i < self->size; i++) {
        dunlin_value y = dunlin_builder_relu(b, dunlin_builder_batch_norm(b, fresh("bn"), x));
        y = dunlin_builder_conv(b, fresh("conv"), y, 12, 3,
                                &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options),
                                                       .padding = 1,
                                                       .no_bias = true});
        x = dunlin_builder_concat(b, (const dunlin_value[]){x, y}, 2);
    }
    x = dunlin_builder_relu(b, dunlin_builder_batch_norm(b, fresh("bn"), x));
    lower(graph, b, head(b, x), self->form == 0);
}

static void build_attention(test_graph *graph, const exact_case *self)
{
    dunlin_builder *b = NULL;
    if (dunlin_builder_create(NULL, &b) != DUNLIN_OK) {
        abort();
    }
    const int32_t width = 64;
    dunlin_value x =
        dunlin_builder_input(b, "x", &(dunlin_shape){.n_dims = 2, .dims = {64, width}});
    for (uint32_t i = 0; i < self->size; i++) {
        dunlin_value y = dunlin_builder_dense(b, fresh("qkv"), x, 3 * width);
        y = dunlin_builder_attention(b, &y, 1, 4, -1);
        y = dunlin_builder_dense(b, fresh("o"), y, width);
        x = dunlin_builder_layer_norm(b, fresh("n"), dunlin_builder_add(b, x, y));
        y = dunlin_builder_gelu(b, dunlin_builder_dense(b, fresh("f"), x, 4 * width));
        y = dunlin_builder_dense(b, fresh("f"), y, width);
        x = dunlin_builder_layer_norm(b, fresh("n"), dunlin_builder_add(b, x, y));
    }
    x = dunlin_builder_mean(b, x, 0);
    lower(graph, b, dunlin_builder_dense(b, "fc", x, 10), self->form == 0);
}

const exact_case *exact_net_cases(size_t *out_n)
{
    static const exact_case cases[] = {
        {"lenet", build_lenet, 0, 0},
        {"plain_2", build_plain, 2, 0},
        {"plain_4", build_plain, 4, 0},
        {"plain_2_apart", build_plain, 2, 1},
        {"mobile_1", build_mobile, 1, 0},
        {"mobile_2", build_mobile, 2, 0},
        {"resnet_1", build_resnet, 1, 0},
        {"resnet_2", build_resnet, 2, 0},
        {"fire_1", build_fire, 1, 0},
        {"fire_2", build_fire, 2, 0},
        {"growing_1_apart", build_growing, 1, 1},
        {"growing_4", build_growing, 4, 0},
        {"attention_1", build_attention, 1, 0},
        {"attention_1_apart", build_attention, 1, 1},
    };
    *out_n = sizeof cases / sizeof cases[0];
    return cases;
}
