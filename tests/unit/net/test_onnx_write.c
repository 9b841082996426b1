/*
 * test_onnx_write.c - export: the same network and weights come back, other readers accept it, and
 * a failure leaves the old file alone.
 */
#include "model/zoo/zoo.h"
#include "net_support.h"

#include <dunlin/attention.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <convert/read/onnx.h>
#include <net/params.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Weights that can be told apart. */
static float value_of(uint32_t param, int64_t element)
{
    return (float)param * 1000.0f + (float)(element % 997) / 8.0f;
}

typedef struct weights {
    int64_t fails_at; /* calls until it fails; 0: never */
    int64_t n_calls;
    uint32_t next_param;
    int64_t next_element;
    const dunlin_net *net;
} weights;

static dunlin_status give(void *ctx, uint32_t param_index, int64_t first, int64_t n, float *out,
                          dunlin_error *error)
{
    weights *w = ctx;
    (void)error;
    if (++w->n_calls == w->fails_at) {
        return DUNLIN_CALLBACK;
    }
    /* In order, every element once. */
    if (w->next_element == w->net->params[w->next_param].n_elements) {
        w->next_param++;
        w->next_element = 0;
    }
    cr_assert_eq(param_index, w->next_param);
    cr_assert_eq(first, w->next_element);
    w->next_element += n;
    for (int64_t i = 0; i < n; i++) {
        out[i] = value_of(param_index, first + i);
    }
    return DUNLIN_OK;
}

static dunlin_status write_weights(const dunlin_net *net, const char *path, weights *w,
                                   dunlin_error *error)
{
    dunlin_outfile file;
    DUNLIN_TRY(dunlin__outfile_open(&file, path, 0666, error));
    return dunlin__outfile_close(&file, dunlin__onnx_write(net, &file, give, w, error), error);
}

static dunlin_status write_net(const dunlin_net *net, const char *path, dunlin_error *error)
{
    weights w = {.net = net};
    dunlin_status status = write_weights(net, path, &w, error);
    cr_assert(status != DUNLIN_OK || w.next_param + 1 == net->n_params);
    return status;
}

static void expect_weights(const dunlin_net *net)
{
    dunlin_param_reader reader;
    dunlin__param_reader_init(&reader, net, 0);
    static float block[4096];
    for (uint32_t i = 0; i < net->n_params; i++) {
        for (int64_t first = 0; first < net->params[i].n_elements; first += 4096) {
            int64_t left = net->params[i].n_elements - first;
            int64_t n = left < 4096 ? left : 4096;
            cr_assert_eq(dunlin__param_read(&reader, i, first, n, block, NULL), DUNLIN_OK);
            for (int64_t j = 0; j < n; j++) {
                cr_assert_eq(block[j], value_of(i, first + j), "%s", net->params[i].name);
            }
        }
    }
    dunlin__param_reader_close(&reader);
}

/* A file's parameters are in the order in which nodes read them; a ViT of the zoo has timm's. */
static void order_params_like(const dunlin_net *net, dunlin_net *back)
{
    cr_assert_eq(net->n_params, back->n_params);
    for (uint32_t i = 0; i < net->n_params; i++) {
        dunlin__zoo_swap_params(back, i, (uint32_t)net_find_param(back, net->params[i].name));
    }
}

static void expect_round_trip(const dunlin_net *net, const char *name)
{
    char path[512];
    dunlin_error error = {0};
    dunlin_model *back = NULL;
    net_temp_path("round_trip.onnx", path);
    cr_assert_eq(write_net(net, path, &error), DUNLIN_OK, "%s: %s", name, error.text);
    cr_assert_eq(dunlin_model_open(path, NULL, &back, &error), DUNLIN_OK, "%s: %s", name,
                 error.text);
    if (strncmp(name, "vit_", 4) == 0) {
        order_params_like(net, &back->net);
    }
    net_expect_equal(net, &back->net);
    expect_weights(&back->net);
    dunlin_model_destroy(back);
    (void)unlink(path);
}

Test(onnx_write, every_ready_made_network_comes_back)
{
    /* Small ones: the large have more of the same, and their weights would only take time. */
    for (int32_t i = 0; dunlin_zoo_name(i) != NULL; i++) {
        const char *name = dunlin_zoo_name(i);
        const dunlin_zoo_options options = {
            .struct_size = sizeof(dunlin_zoo_options), .image = net_zoo_image(name), .classes = 6};
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_from_zoo(name, &options, NULL, &model, NULL), DUNLIN_OK);
        if (dunlin_model_n_trainable_elements(model) < 9000000) {
            expect_round_trip(&model->net, name);
        }
        dunlin_model_destroy(model);
    }
}

/* Class tokens, positions, a segment that is always 0 and a mask of padding. */
Test(onnx_write, small_transformers_come_back)
{
    static const char *const names[] = {"vit_tiny_patch4", "bert_tiny", "bert_small_masked"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                            .image = i == 0 ? 8 : 0,
                                            .classes = 6,
                                            .sequence = i == 0 ? 0 : 7,
                                            .vocabulary = i == 0 ? 0 : 11};
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_from_zoo(names[i], &options, NULL, &model, NULL), DUNLIN_OK);
        expect_round_trip(&model->net, names[i]);
        dunlin_model_destroy(model);
    }
}

/* Looking back, shared keys, masks of the input's and of the network's own: one bit of `kind` each;
 * bit 3: q, k and v apart; bit 5: rotary positions. */
static dunlin_model *attention_model(uint32_t kind)
{
    enum { TOKENS = 5, HEADS = 4, WIDTH = 4, MASK = HEADS * TOKENS * TOKENS };
    const dunlin_shape input = {1, {TOKENS * 2 + TOKENS}};
    dunlin_attention_options options = DUNLIN_ATTENTION_OPTIONS_INIT;
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    float mask[MASK];
    for (int i = 0; i < MASK; i++) {
        mask[i] = 0.125F * (float)(i % 17);
    }
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_value x = dunlin_builder_input(builder, "x", &input);
    dunlin_value rows = dunlin_builder_slice(builder, x, 0, 0, 2 * TOKENS);
    rows = dunlin_builder_reshape(builder, rows, &(dunlin_shape){2, {TOKENS, 2}});
    options.is_causal = (kind & 1) != 0;
    options.kv_heads = (kind & 2) != 0 ? 2 : 0;
    options.has_mask = (kind & 4) != 0;
    if (options.has_mask) {
        options.mask = dunlin_builder_slice(builder, x, 0, 2 * TOKENS, 3 * TOKENS);
        options.mask =
            dunlin_builder_reshape(builder, options.mask, &(dunlin_shape){3, {1, 1, TOKENS}});
    }
    options.fixed_mask = (kind & 16) != 0 ? mask : NULL;
    options.fixed_mask_shape = (dunlin_shape){3, {HEADS, TOKENS, TOKENS}};
    options.rotary_base = (kind & 32) != 0 ? 100.0F : 0.0F;
    const int32_t kv_width = (options.kv_heads == 0 ? HEADS : options.kv_heads) * WIDTH;
    dunlin_value parts[3] = {-1, -1, -1};
    const bool is_packed = (kind & 8) == 0;
    if (is_packed) {
        parts[0] = dunlin_builder_dense(builder, "qkv", rows, HEADS * WIDTH + 2 * kv_width);
    } else {
        parts[0] = dunlin_builder_dense(builder, "q", rows, HEADS * WIDTH);
        parts[1] = dunlin_builder_dense(builder, "k", rows, kv_width);
        parts[2] = dunlin_builder_dense(builder, "v", rows, kv_width);
    }
    dunlin_value y = dunlin_builder_attention_with(builder, "attention", parts, is_packed ? 1 : 3,
                                                   HEADS, &options);
    options.fixed_mask = NULL;
    options.rotary_base = 0.0F;
    y = dunlin_builder_dense(builder, "qkv2", y, HEADS * WIDTH + 2 * kv_width);
    y = dunlin_builder_attention_with(builder, NULL, &y, 1, HEADS, &options);
    y = dunlin_builder_dense(builder, "head", dunlin_builder_mean(builder, y, 0), 3);
    cr_assert_eq(dunlin_builder_finish(builder, y, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

Test(onnx_write, attention_of_all_kinds_comes_back)
{
    for (uint32_t kind = 0; kind < 64; kind++) {
        char name[32];
        (void)snprintf(name, sizeof name, "attention of kind %u", kind);
        dunlin_model *model = attention_model(kind);
        expect_round_trip(&model->net, name);
        dunlin_model_destroy(model);
    }
}

Test(onnx_write, a_mask_of_padding_comes_back)
{
    const dunlin_shape input = {1, {6}};
    dunlin_attention_options options = DUNLIN_ATTENTION_OPTIONS_INIT;
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_value ids = dunlin_builder_input(builder, "ids", &input);
    options.has_mask = true;
    options.mask = dunlin_builder_reshape(builder, dunlin_builder_padding_mask(builder, ids, 0),
                                          &(dunlin_shape){3, {1, 1, 6}});
    dunlin_value x = dunlin_builder_embedding(builder, "table", ids, 9, 4);
    x = dunlin_builder_dense(builder, "qkv", x, 12);
    x = dunlin_builder_attention_with(builder, NULL, &x, 1, 2, &options);
    x = dunlin_builder_dense(builder, "head", dunlin_builder_mean(builder, x, 0), 3);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, &error), DUNLIN_OK, "%s", error.text);
    expect_round_trip(&model->net, "padding");
    dunlin_model_destroy(model);
}

Test(onnx_write, what_was_read_comes_back)
{
    const char *files[] = {"train13.onnx",
                           "train17.onnx",
                           "view17.onnx",
                           "identity.onnx",
                           "trans_b0.onnx",
                           "external.onnx",
                           "groups17.onnx",
                           "forms18.onnx",
                           "forms21.onnx",
                           "leaky.onnx",
                           "named_pools.onnx",
                           "pools.onnx",
                           "pools_signals.onnx",
                           "extremes.onnx",
                           "choice.onnx",
                           "functions.onnx",
                           "gates.onnx",
                           "shuffle.onnx",
                           "permuted.onnx",
                           "pieces.onnx",
                           "channels_last.onnx",
                           "prelu.onnx",
                           "reduced.onnx",
                           "channel_norm.onnx",
                           "depth.onnx",
                           "pixels_unet.onnx",
                           "pixels_fcn.onnx",
                           "pixels_signals.onnx",
                           "upsampled9.onnx",
                           "mask_table.onnx",
                           "mask_soft.onnx",
                           "mask_biases.onnx",
                           "mask_shared.onnx",
                           "mask_llama.onnx",
                           "place_tokens_first.onnx",
                           "place_vit.onnx",
                           "place_rows.onnx"};
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        char path[512];
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_open(net_onnx_path(files[f], path), NULL, &model, NULL),
                     DUNLIN_OK);
        expect_round_trip(&model->net, files[f]);
        dunlin_model_destroy(model);
    }
}

/* The system's Python may come after another one in the path. */
static const char *find_python(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    for (int i = 0; i < 2; i++) {
        char command[128];
        (void)snprintf(command, sizeof command, "%s -c 'import onnx.checker' >/dev/null 2>&1",
                       pythons[i]);
        if (system(command) == 0) {
            return pythons[i];
        }
    }
    return NULL;
}

/* onnx.checker with shape inference, where python3-onnx is installed. */
Test(onnx_write, the_onnx_checker_accepts_it)
{
    const char *python = find_python();
    if (python == NULL) {
        cr_skip_test("python3-onnx is not installed");
    }
    char command[20000];
    char paths[32][512];
    int n = 0;
    int used = snprintf(command, sizeof command, "%s '%s'", python, DUNLIN_CHECK_ONNX);
    const char *names[] = {"lenet5",
                           "mlp",
                           "cnn_bn",
                           "tiny_bn",
                           "mobilenet_v1",
                           "mobilenet_v2",
                           "densenet121",
                           "squeezenet1_1",
                           "resnet18",
                           "bert_small",
                           "groups17.onnx",
                           "leaky.onnx",
                           "functions.onnx",
                           "factors.onnx",
                           "recommender.onnx",
                           "worded9.onnx",
                           "prelu.onnx",
                           "pools.onnx",
                           "pools_signals.onnx",
                           "extremes.onnx",
                           "choice.onnx"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[512];
        dunlin_model *model = NULL;
        const bool is_file = strchr(names[i], '.') != NULL;
        const bool has_tokens = strcmp(names[i], "bert_small") == 0;
        const dunlin_zoo_options options = {.struct_size = sizeof(dunlin_zoo_options),
                                            .image = has_tokens ? 0 : 64,
                                            .classes = 6,
                                            .sequence = has_tokens ? 16 : 0,
                                            .vocabulary = has_tokens ? 50 : 0};
        dunlin_status status =
            is_file ? dunlin_model_open(net_onnx_path(names[i], file), NULL, &model, NULL)
                    : dunlin_model_from_zoo(names[i], &options, NULL, &model, NULL);
        cr_assert_eq(status, DUNLIN_OK, "%s", names[i]);
        (void)snprintf(file, sizeof file, "%s.ours.onnx", names[i]);
        net_temp_path(file, paths[n]);
        cr_assert_eq(write_net(&model->net, paths[n], NULL), DUNLIN_OK);
        used += snprintf(command + used, sizeof command - (size_t)used, " '%s'", paths[n]);
        n++;
        dunlin_model_destroy(model);
    }
    int result = system(command);
    for (int i = 0; i < n; i++) {
        (void)unlink(paths[i]);
    }
    cr_assert_eq(result, 0, "%s", command);
}

static void expect_untouched(const char *path)
{
    char part[600];
    size_t n = 0;
    uint8_t *bytes = net_read_file(path, &n);
    cr_assert(n == 3 && memcmp(bytes, "old", 3) == 0);
    free(bytes);
    (void)snprintf(part, sizeof part, "%s.part", path);
    cr_assert_neq(access(part, F_OK), 0, "%s is left behind", part);
}

Test(onnx_write, failures_leave_the_old_file)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    net_temp_path("old.onnx", path);
    net_write_file(path, "old", 3);
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);

    /* The source of the weights. */
    for (int64_t n = 1; n <= 3; n++) {
        weights w = {.net = &model->net, .fails_at = n};
        cr_assert_eq(write_weights(&model->net, path, &w, &error), DUNLIN_CALLBACK);
        expect_untouched(path);
    }
    /* Each allocation. */
    dunlin_alloc alloc = model->net.alloc;
    dunlin_status status = DUNLIN_MEMORY;
    for (int64_t n = 1; status == DUNLIN_MEMORY; n++) {
        net_failing failing;
        net_failing_init(&failing, n);
        model->net.alloc = failing.hooks;
        status = write_net(&model->net, path, &error);
        cr_assert_eq(failing.n_live, 0);
        if (status != DUNLIN_OK) {
            net_expect_line(&error, DUNLIN_MEMORY, "allocation");
            expect_untouched(path);
        }
    }
    model->net.alloc = alloc;
    cr_assert_eq(status, DUNLIN_OK);

    /* The storage: no file may grow past 100,000 bytes. */
    net_write_file(path, "old", 3);
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {100000, 100000};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(write_net(&model->net, path, &error), DUNLIN_SPACE);
    net_expect_line(&error, DUNLIN_SPACE, "full");
    expect_untouched(path);
    (void)unlink(path);

    cr_assert_eq(write_net(&model->net, "/nonexistent/folder/m.onnx", &error), DUNLIN_IO);
    net_expect_line(&error, DUNLIN_IO, "no folder");
    dunlin_model_destroy(model);
}
