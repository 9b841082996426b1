/*
 * test_border.c - an exported file has the inputs and the output of the file that was read: names,
 * types, shapes, order. It is read again to the same network, and written again to the same bytes.
 */
#include "net_support.h"

#include <criterion/criterion.h>

#include <convert/read/onnx.h>
#include <onnx/wire/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(border, .timeout = 300);

static dunlin_status give(void *ctx, uint32_t param_index, int64_t first, int64_t n, float *out,
                          dunlin_error *error)
{
    const dunlin_net *net = ctx;
    (void)error;
    for (int64_t i = 0; i < n; i++) {
        out[i] = net_formula(net->params[param_index].name, first + i);
    }
    return DUNLIN_OK;
}

static void write_net(dunlin_net *net, const char *name, char path[512])
{
    dunlin_error error = {0};
    net_temp_path(name, path);
    dunlin_outfile file;
    cr_assert_eq(dunlin__outfile_open(&file, path, 0666, &error), DUNLIN_OK, "%s", error.text);
    const dunlin_status status = dunlin__onnx_write(net, &file, give, net, &error);
    cr_assert_eq(dunlin__outfile_close(&file, status, &error), DUNLIN_OK, "%s", error.text);
}

static const dunlin_model_sizes no_sizes = DUNLIN_MODEL_SIZES_INIT;

static dunlin_model *open_sized(const char *path, const dunlin_model_sizes *sizes)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open_sized(path, sizes, NULL, &model, &error), DUNLIN_OK, "%s: %s",
                 path, error.text);
    return model;
}

static dunlin_model *open_model(const char *path)
{
    return open_sized(path, &no_sizes);
}

/* "name type (dim, ...)" of every input, then "-> " and the outputs; as the file has them. */
static void border_text(const char *path, char *text, size_t n_bytes)
{
    dunlin_onnx_file file;
    size_t used = 0;
    const dunlin_onnx_place place = {.path = path};
    cr_assert_eq(dunlin__onnx_file_load(&file, NULL, &place, NULL), DUNLIN_OK, "%s", path);
    for (size_t i = 0; i < file.n_inputs + file.n_outputs; i++) {
        const bool is_input = i < file.n_inputs;
        const dunlin_onnx_port *port =
            is_input ? &file.inputs[i] : &file.outputs[i - file.n_inputs];
        used += (size_t)snprintf(text + used, n_bytes - used, "%s%s %d (", is_input ? "" : "-> ",
                                 dunlin__onnx_file_text(&file, port->name), (int)port->type);
        for (int32_t k = 0; k < port->shape.n_dims; k++) {
            const char *name = dunlin__onnx_file_text(&file, port->dim_names[k]);
            used += (size_t)snprintf(text + used, n_bytes - used, "%s%s%.0d", k > 0 ? ", " : "",
                                     name, name[0] == '\0' ? (int)port->shape.dims[k] : 0);
        }
        used += (size_t)snprintf(text + used, n_bytes - used, ")%s", is_input ? ", " : "");
        cr_assert_lt(used, n_bytes);
    }
    dunlin__onnx_file_free(&file);
}

static void expect_same_bytes(const char *a, const char *b)
{
    size_t n_a = 0;
    size_t n_b = 0;
    uint8_t *of_a = net_read_file(a, &n_a);
    uint8_t *of_b = net_read_file(b, &n_b);
    cr_expect(n_a == n_b && memcmp(of_a, of_b, n_a) == 0, "%s and %s differ", a, b);
    free(of_a);
    free(of_b);
}

static void expect_sized(const char *name, const dunlin_model_sizes *sizes, const char *border)
{
    char path[512];
    char once[512];
    char twice[512];
    char text[1024];
    dunlin_model *model = open_sized(net_onnx_path(name, path), sizes);
    write_net(&model->net, "border_once.onnx", once);
    border_text(once, text, sizeof text);
    cr_expect_str_eq(text, border, "%s", name);
    dunlin_model *back = open_sized(once, sizes);
    net_expect_equal(&model->net, &back->net);
    cr_expect_str_eq(back->net.values[back->net.output].name,
                     model->net.values[model->net.output].name);
    write_net(&back->net, "border_twice.onnx", twice);
    expect_same_bytes(once, twice);
    dunlin_model_destroy(back);
    dunlin_model_destroy(model);
    (void)unlink(once);
    (void)unlink(twice);
}

static void expect_round_trips(const char *name, const char *border)
{
    expect_sized(name, &no_sizes, border);
}

/* 1: float32; 6: int32; 7: int64. */
Test(border, what_was_read_is_written)
{
    expect_round_trips("bert_inputs.onnx",
                       "input_ids 7 (N, 6), attention_mask 7 (N, 6), token_type_ids 7 (N, 6), "
                       "-> y 1 (N, 3)");
    expect_round_trips("bert13.onnx", "x 7 (N, 6), -> y 1 (N, 3)");
    expect_round_trips("positions.onnx", "x 7 (N, 5), -> y 1 (N, 3)");
    expect_round_trips("siamese.onnx", "a 1 (N, 7), b 1 (N, 7), -> y 1 (N, 2)");
    expect_round_trips("view17.onnx", "x 1 (N, 1, 6, 6), -> y 1 (N, 3)");
    /* The weight that is listed as an input need not be fed; it is an initialiser only. */
    expect_round_trips("border.onnx", "ids 6 (batch, 3), spare 7 (batch, any), inputs 1 (batch, "
                                      "4), -> scores 1 (batch, classes)");
    expect_round_trips("pair.onnx", "input_ids 1 (N, 2, 8, 8), attention_mask 1 (N, 2, 8, 8), "
                                    "token_type_ids 1 (N, 1), -> y 1 (N, 2)");
    expect_round_trips("factors.onnx", "user 7 (N), item 6 (N), -> score 1 (N)");
    expect_round_trips("recommender.onnx", "a 7 (N), b 7 (N), -> y 1 (N, 2)");
    expect_round_trips("border_fixed.onnx", "x 7 (2, 3), -> y 1 (2, 3)");
    expect_round_trips("border_shape.onnx", "x 1 (N, 4), mask 7 (N, 2), -> y 1 (N, 3)");
}

/* What the file leaves open stays open, by its name. */
Test(border, open_sizes_stay_open)
{
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    sizes.height = 7;
    sizes.width = 5;
    sizes.length = 4;
    expect_sized("any_size.onnx", &sizes, "x 1 (N, 2, height, width), -> y 1 (N, 3)");
    expect_sized("dynamic.onnx", &sizes, "x 1 (N, F), -> y 1 (N, 3)");
}

/* The file's text is the one above, so that the table is checked against the files as well. */
Test(border, the_files_say_the_same)
{
    const char *files[] = {"bert_inputs.onnx", "bert13.onnx", "positions.onnx",
                           "siamese.onnx",     "view17.onnx", "border_fixed.onnx"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[512];
        char ours[512];
        char before[1024];
        char after[1024];
        dunlin_model *model = open_model(net_onnx_path(files[i], path));
        write_net(&model->net, "border_same.onnx", ours);
        border_text(path, before, sizeof before);
        border_text(ours, after, sizeof after);
        cr_expect_str_eq(after, before, "%s", files[i]);
        dunlin_model_destroy(model);
        (void)unlink(ours);
    }
}

Test(border, a_new_head_changes_the_outputs_size_only)
{
    char path[512];
    char ours[512];
    char text[1024];
    dunlin_model *model = open_model(net_onnx_path("bert_inputs.onnx", path));
    dunlin_model *wider = NULL;
    cr_assert_eq(dunlin_model_replace_head(model, 5, NULL, &wider, NULL), DUNLIN_OK);
    write_net(&wider->net, "border_head.onnx", ours);
    border_text(ours, text, sizeof text);
    cr_expect_str_eq(text, "input_ids 7 (N, 6), attention_mask 7 (N, 6), token_type_ids 7 (N, 6), "
                           "-> y 1 (N, 5)");
    dunlin_model_destroy(wider);
    dunlin_model_destroy(model);
    (void)unlink(ours);
}

/* A new head would change the table that it is. */
Test(border, a_tied_head_is_not_replaced)
{
    char path[512];
    dunlin_error error = {0};
    dunlin_model *wider = NULL;
    expect_round_trips("tied.onnx", "x 7 (N, 5), -> y 1 (N, 11)");
    expect_round_trips("tied_rows.onnx", "x 7 (N, 5), -> y 1 (N, 11)");
    expect_round_trips("shared.onnx", "x 1 (N, 4), -> y 1 (N, 4)");
    expect_round_trips("mirrored.onnx", "x 1 (N, 7), -> y 1 (N, 7)");
    expect_round_trips("mirrored_rows.onnx", "x 1 (N, 3, 7), -> y 1 (N, 7)");
    dunlin_model *model = open_model(net_onnx_path("tied.onnx", path));
    cr_assert_eq(dunlin_model_replace_head(model, 5, NULL, &wider, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "'table.weight'"), "%s", error.text);
    dunlin_model_destroy(model);
}

/* A network that was not read from a file has one float32 input. */
Test(border, ready_made_networks)
{
    char ours[512];
    char text[1024];
    const dunlin_zoo_options options = {
        .struct_size = sizeof(dunlin_zoo_options), .classes = 6, .sequence = 16, .vocabulary = 50};
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("bert_small", &options, NULL, &model, NULL), DUNLIN_OK);
    write_net(&model->net, "border_zoo.onnx", ours);
    border_text(ours, text, sizeof text);
    cr_expect_str_eq(text, "input 1 (N, 16), -> classifier/out 1 (N, 6)");
    dunlin_model_destroy(model);
    (void)unlink(ours);
}
