/*
 * test_onnx_attention.c - attention as people write it and exporters put it down: the numbers of
 * PyTorch (onnx_masks.py), and one operator in the end.
 */
#include "net_expect.h"
#include "net_support.h"

#include <dunlin/attention.h>
#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(onnx_attention, .timeout = 900);

static void check_file(const char *name)
{
    char model[512];
    char expect[512];
    char ours[512];
    char file[64];
    char text[NET_EXPECT_TEXT];
    (void)snprintf(file, sizeof file, "%s.onnx", name);
    net_onnx_path(file, model);
    net_temp_path(file, ours);
    (void)snprintf(file, sizeof file, "%s.expect", name);
    net_onnx_path(file, expect);
    bool is_good = net_expect_check(model, expect, ours, text);
    (void)unlink(ours);
    cr_assert(is_good, "%s: %s", name, text);
}

static size_t count_kind(const dunlin_net *net, dunlin_op_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        n += net->nodes[i].kind == kind ? 1 : 0;
    }
    return n;
}

/* Made of constants: of a table of floats, of bools, of minus infinity, of positions. */
Test(onnx_attention, masks_that_look_back)
{
    check_file("mask_table");
    check_file("mask_bools");
    check_file("mask_triangle");
    check_file("mask_steps");
    check_file("mask_soft");
    check_file("mask_stored");
}

/* A mask of each head's own, heads that share keys, q, k and v in one, both sides scaled. */
Test(onnx_attention, attention_in_other_words)
{
    check_file("mask_biases");
    check_file("mask_shared");
    check_file("mask_chunk");
    check_file("mask_einsum");
}

/* RMSNorm, rotary positions, shared keys, SwiGLU. */
Test(onnx_attention, a_decoder_of_today)
{
    char path[512];
    dunlin_model *model = NULL;
    check_file("mask_llama");
    cr_assert_eq(dunlin_model_open(net_onnx_path("mask_llama.onnx", path), NULL, &model, NULL),
                 DUNLIN_OK);
    size_t n_about_zero = 0;
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        const dunlin_net_node *node = &model->net.nodes[i];
        n_about_zero +=
            node->kind == DUNLIN_OP_LAYER_NORM && node->u.layer_norm.is_about_zero ? 1 : 0;
    }
    cr_expect_eq(n_about_zero, 3);
    cr_expect_eq(count_kind(&model->net, DUNLIN_OP_MEAN), 0);
    dunlin_model_destroy(model);
}

/* What lies ahead is a flag, no parameter; a choice that hides nothing stays one. */
Test(onnx_attention, masks_are_joined)
{
    const struct {
        const char *file;
        size_t n_attention, n_inputs;
        int32_t heads, kv_heads;
        bool has_fixed;
    } cases[] = {
        {"mask_table.onnx", 1, 3, 2, 0, false},    {"mask_bools.onnx", 1, 3, 2, 0, false},
        {"mask_triangle.onnx", 1, 3, 2, 0, false}, {"mask_steps.onnx", 1, 3, 2, 0, false},
        {"mask_soft.onnx", 0, 0, 0, 0, false},     {"mask_stored.onnx", 1, 3, 2, 0, false},
        {"mask_biases.onnx", 1, 1, 2, 0, true},    {"mask_shared.onnx", 1, 1, 4, 2, false},
        {"mask_chunk.onnx", 1, 1, 2, 0, false},    {"mask_einsum.onnx", 1, 1, 2, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_open(net_onnx_path(cases[i].file, path), NULL, &model, NULL),
                     DUNLIN_OK);
        const dunlin_net *net = &model->net;
        cr_expect_eq(count_kind(net, DUNLIN_OP_ATTENTION), cases[i].n_attention, "%s",
                     cases[i].file);
        for (size_t k = 0; k < net->n_nodes; k++) {
            const dunlin_net_node *node = &net->nodes[k];
            if (node->kind != DUNLIN_OP_ATTENTION) {
                continue;
            }
            cr_expect(node->u.attention.is_causal, "%s", cases[i].file);
            cr_expect_eq(node->n_inputs, cases[i].n_inputs, "%s", cases[i].file);
            cr_expect_eq(node->u.attention.heads, cases[i].heads, "%s", cases[i].file);
            cr_expect_eq(node->u.attention.kv_heads, cases[i].kv_heads, "%s", cases[i].file);
            cr_expect_eq(node->n_params > 0, cases[i].has_fixed, "%s", cases[i].file);
            cr_expect_float_eq(node->u.attention.scale, 0.5F, 1e-6F, "%s", cases[i].file);
        }
        dunlin_model_destroy(model);
    }
}

/* PyTorch's own attention, a class token, all tokens of all samples as rows. */
Test(onnx_attention, tokens_before_the_batch)
{
    check_file("place_encoder");
    check_file("place_tokens_first");
    check_file("place_norm_first");
    check_file("place_heads");
    check_file("place_vit");
    check_file("place_rows");
}

/* Moves of the batch are gone: nothing is transposed but within a sample. */
Test(onnx_attention, moves_of_the_batch_cancel)
{
    const struct {
        const char *file;
        size_t n_inputs; /* of attention */
        bool is_causal;
        size_t n_moves; /* of elements */
    } cases[] = {{"place_encoder.onnx", 1, false, 0},
                 {"place_tokens_first.onnx", 1, true, 0},
                 {"place_norm_first.onnx", 1, false, 0},
                 {"place_heads.onnx", 1, false, 0},
                 {"place_vit.onnx", 1, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin_model_open(net_onnx_path(cases[i].file, path), NULL, &model, &error),
                     DUNLIN_OK, "%s", error.text);
        const dunlin_net *net = &model->net;
        cr_expect_eq(count_kind(net, DUNLIN_OP_ATTENTION), 1, "%s", cases[i].file);
        cr_expect_eq(count_kind(net, DUNLIN_OP_TRANSPOSE), cases[i].n_moves, "%s", cases[i].file);
        for (size_t k = 0; k < net->n_nodes; k++) {
            const dunlin_net_node *node = &net->nodes[k];
            if (node->kind == DUNLIN_OP_ATTENTION) {
                cr_expect_eq(node->n_inputs, cases[i].n_inputs, "%s", cases[i].file);
                cr_expect_eq(node->u.attention.is_causal, cases[i].is_causal, "%s", cases[i].file);
            }
        }
        dunlin_model_destroy(model);
    }
}

Test(onnx_attention, what_is_over_the_batch_is_refused)
{
    static const struct {
        const char *file, *text;
    } cases[] = {{"place_bad_softmax.onnx", "'over'"},
                 {"place_bad_sum.onnx", "'over'"},
                 {"place_bad_unknown.onnx", "'over'"},
                 {"place_bad_mixed.onnx", "'over'"},
                 {"place_bad_output.onnx", "not the output's first dimension"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_expect_eq(dunlin_model_open(net_onnx_path(cases[i].file, path), NULL, &model, &error),
                     DUNLIN_UNSUPPORTED, "%s: %s", cases[i].file, error.text);
        cr_expect_not_null(strstr(error.text, cases[i].text), "%s: %s", cases[i].file, error.text);
        net_expect_line(&error, DUNLIN_UNSUPPORTED, cases[i].file);
    }
}

static dunlin_status read_padded(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_labels)
{
    static const float tokens[6] = {3.0F, 5.0F, 1.0F, 0.0F, 0.0F, 0.0F};
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        memcpy((float *)out_x + i * 6, tokens, sizeof tokens);
        out_labels[i] = (int32_t)indices[i];
    }
    return DUNLIN_OK;
}

/* What padding looks like makes no difference to a token that sees none of it. */
Test(onnx_attention, padding_is_not_seen)
{
    const dunlin_shape input = {1, {6}};
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .read_fn = read_padded,
                                  .n_examples = 1,
                                  .dtype = DUNLIN_F32};
    for (int is_masked = 0; is_masked < 2; is_masked++) {
        dunlin_attention_options options = DUNLIN_ATTENTION_OPTIONS_INIT;
        dunlin_trainer_options trained = DUNLIN_TRAINER_OPTIONS_INIT;
        dunlin_builder *builder = NULL;
        dunlin_model *model = NULL;
        dunlin_trainer *trainer = NULL;
        dunlin_error error = {0};
        float logits[2][3];
        float table[9 * 4];
        cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
        const dunlin_value ids = dunlin_builder_input(builder, "ids", &input);
        options.has_mask = is_masked != 0;
        options.mask = is_masked ? dunlin_builder_padding_mask(builder, ids, 0) : 0;
        dunlin_value x = dunlin_builder_embedding(builder, "table", ids, 9, 4);
        x = dunlin_builder_dense(builder, "qkv", x, 12);
        x = dunlin_builder_attention_with(builder, NULL, &x, 1, 2, &options);
        x = dunlin_builder_flatten(builder, dunlin_builder_slice(builder, x, 0, 0, 1));
        x = dunlin_builder_dense(builder, "head", x, 3);
        cr_assert_eq(dunlin_builder_finish(builder, x, &model, &error), DUNLIN_OK, "%s",
                     error.text);
        trained.batch = 1;
        cr_assert_eq(dunlin_trainer_create(model, &trained, &trainer, &error), DUNLIN_OK, "%s",
                     error.text);
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(dunlin_trainer_predict(trainer, &source, 0, 1, logits[i]), DUNLIN_OK);
            cr_assert_eq(dunlin_trainer_get_parameter(trainer, "table.weight", table, 36),
                         DUNLIN_OK);
            for (int k = 0; k < 4; k++) {
                table[k] += 2.0F; /* the row of padding */
            }
            cr_assert_eq(dunlin_trainer_set_parameter(trainer, "table.weight", table, 36),
                         DUNLIN_OK);
        }
        cr_expect_eq(memcmp(logits[0], logits[1], sizeof logits[0]) == 0, is_masked != 0);
        dunlin_trainer_destroy(trainer);
        dunlin_model_destroy(model);
    }
}
