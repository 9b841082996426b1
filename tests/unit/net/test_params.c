/*
 * test_params.c - first values: any block alone equals its part of the whole; distributions; files.
 */
#include "net_support.h"
#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <net/params.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static float *read_all(const dunlin_net *net, uint32_t index, uint64_t seed)
{
    dunlin_param_reader reader;
    dunlin_error error = {0};
    dunlin__param_reader_init(&reader, net, seed);
    int64_t n = net->params[index].n_elements;
    float *values = malloc((size_t)n * sizeof *values);
    cr_assert_not_null(values);
    dunlin_status status = dunlin__param_read(&reader, index, 0, n, values, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s", error.text);
    dunlin__param_reader_close(&reader);
    return values;
}

/* Random blocks against the whole. */
static void expect_blocks(const dunlin_net *net, uint32_t index, const float *whole,
                          uint64_t *state)
{
    dunlin_param_reader reader;
    dunlin__param_reader_init(&reader, net, 11);
    int64_t n = net->params[index].n_elements;
    float *block = malloc((size_t)n * sizeof *block);
    for (int i = 0; i < 40; i++) {
        int64_t first = (int64_t)test_random_below(state, (uint64_t)n);
        int64_t part = (int64_t)test_random_below(state, (uint64_t)(n - first) + 1);
        cr_assert_eq(dunlin__param_read(&reader, index, first, part, block, NULL), DUNLIN_OK);
        cr_assert_eq(memcmp(block, whole + first, (size_t)part * sizeof *block), 0,
                     "%s: %lld + %lld", net->params[index].name, (long long)first, (long long)part);
    }
    free(block);
    dunlin__param_reader_close(&reader);
}

Test(params, blocks_equal_the_whole)
{
    uint64_t state = test_seed(3);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("tiny_bn", NULL, NULL, &model, NULL), DUNLIN_OK);
    for (uint32_t i = 0; i < model->net.n_params; i++) {
        float *whole = read_all(&model->net, i, 11);
        expect_blocks(&model->net, i, whole, &state);
        free(whole);
    }
    dunlin_model_destroy(model);
}

Test(params, distributions)
{
    dunlin_net net;
    dunlin__net_init(&net, NULL);
    uint32_t a = dunlin__net_add_param(&net, "uniform");
    uint32_t b = dunlin__net_add_param(&net, "normal");
    for (uint32_t i = 0; i < 2; i++) {
        net.params[i].shape = (dunlin_shape){1, {100000}};
        net.params[i].n_elements = 100000;
        net.params[i].bound = 0.5f;
    }
    net.params[a].origin = DUNLIN_PARAM_UNIFORM;
    net.params[b].origin = DUNLIN_PARAM_NORMAL;
    const double deviations[2] = {0.5 / sqrt(3.0), 0.5};
    const double kurtoses[2] = {1.8, 3.0};
    for (uint32_t i = 0; i < 2; i++) {
        float *values = read_all(&net, i, 5);
        double sum = 0.0;
        double squares = 0.0;
        double fourth = 0.0;
        for (int64_t j = 0; j < 100000; j++) {
            double v = (double)values[j];
            cr_assert(i == 1 || (v >= -0.5 && v <= 0.5));
            sum += v;
            squares += v * v;
            fourth += v * v * v * v;
        }
        double variance = squares / 1e5;
        cr_expect_lt(fabs(sum / 1e5), 5.0 * deviations[i] / sqrt(1e5));
        cr_expect_float_eq(sqrt(variance), deviations[i], 0.01 * deviations[i]);
        cr_expect_float_eq(fourth / 1e5 / (variance * variance), kurtoses[i], 0.1);
        free(values);
    }
    /* Another seed and another parameter are other numbers. */
    float *first = read_all(&net, a, 5);
    float *other = read_all(&net, a, 6);
    net.params[b].origin = DUNLIN_PARAM_UNIFORM;
    float *next = read_all(&net, b, 5);
    int n_same = 0;
    for (int i = 0; i < 1000; i++) {
        n_same += first[i] == other[i] || first[i] == next[i];
    }
    cr_expect_lt(n_same, 5);
    free(first);
    free(other);
    free(next);
    dunlin__net_free(&net);
}

static dunlin_model *open_model(const char *path)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    dunlin_status status = dunlin_model_open(path, NULL, &model, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", path, error.text);
    return model;
}

/* Element (r, c) of a weight whose file holds the transpose. */
static float transposed_formula(const dunlin_net_param *param, int64_t i)
{
    int64_t columns = param->shape.dims[1];
    return net_formula(param->name, i % columns * param->shape.dims[0] + i / columns);
}

Test(params, from_files)
{
    const char *files[] = {"train13.onnx",    "train17.onnx",  "view13.onnx",
                           "view17.onnx",     "trans_b0.onnx", "trans_b1.onnx",
                           "float_data.onnx", "external.onnx", "nothing.onnx"};
    uint64_t state = test_seed(4);
    char path[512];
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        dunlin_model *model = open_model(net_onnx_path(files[f], path));
        cr_assert_gt(model->net.n_params, 0);
        for (uint32_t i = 0; i < model->net.n_params; i++) {
            const dunlin_net_param *param = &model->net.params[i];
            float *whole = read_all(&model->net, i, 11);
            for (int64_t j = 0; j < param->n_elements; j++) {
                float wanted = param->is_transposed_in_file ? transposed_formula(param, j)
                                                            : net_formula(param->name, j);
                cr_assert_eq(whole[j], wanted, "%s: %s[%lld]", files[f], param->name, (long long)j);
            }
            expect_blocks(&model->net, i, whole, &state);
            free(whole);
        }
        dunlin_model_destroy(model);
    }
}

Test(params, wide_transposed_store)
{
    /* More rows than are read at once. */
    enum { ROWS = 2500, COLUMNS = 3 };
    char path[512];
    static float stored[COLUMNS][ROWS];
    for (int c = 0; c < COLUMNS; c++) {
        for (int r = 0; r < ROWS; r++) {
            stored[c][r] = (float)(r * COLUMNS + c);
        }
    }
    net_write_file(net_temp_path("wide", path), stored, sizeof stored);
    dunlin_net net;
    dunlin__net_init(&net, NULL);
    uint32_t index = dunlin__net_add_param(&net, "w");
    net.params[index].shape = (dunlin_shape){2, {ROWS, COLUMNS}};
    net.params[index].n_elements = ROWS * COLUMNS;
    net.params[index].origin = DUNLIN_PARAM_FILE;
    net.params[index].is_transposed_in_file = true;
    net.params[index].weights_path = dunlin__net_string(&net, path);
    float *whole = read_all(&net, index, 0);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        cr_assert_eq(whole[i], (float)i);
    }
    uint64_t state = test_seed(5);
    expect_blocks(&net, index, whole, &state);
    free(whole);
    dunlin__net_free(&net);
    (void)unlink(path);
}

Test(params, refusals)
{
    char path[512];
    size_t n = 0;
    uint8_t *bytes = net_read_file(net_onnx_path("trans_b1.onnx", path), &n);
    net_write_file(net_temp_path("refusals.onnx", path), bytes, n);
    dunlin_model *model = open_model(path);
    uint64_t offset = model->net.params[0].file_offset;
    dunlin_param_reader reader;
    dunlin_error error = {0};
    float values[12];

    dunlin__param_reader_init(&reader, &model->net, 0);
    cr_assert_eq(dunlin__param_read(&reader, 9, 0, 1, values, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__param_read(&reader, 0, -1, 1, values, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__param_read(&reader, 0, 4, 9, values, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__param_read(&reader, 0, 0, INT64_MAX, values, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__param_read(&reader, 0, 12, 0, values, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__param_read(&reader, 0, 0, 12, values, &error), DUNLIN_OK);
    dunlin__param_reader_close(&reader);

    const float infinite = INFINITY;
    memcpy(bytes + offset + 8 * sizeof infinite, &infinite, sizeof infinite);
    net_write_file(path, bytes, n);
    dunlin__param_reader_init(&reader, &model->net, 0);
    cr_assert_eq(dunlin__param_read(&reader, 0, 0, 12, values, &error), DUNLIN_NUMERIC);
    net_expect_line(&error, DUNLIN_NUMERIC, "infinite");
    cr_assert_not_null(strstr(error.text, "'w'"));
    dunlin__param_reader_close(&reader);

    net_write_file(path, bytes, (size_t)offset + 5);
    dunlin__param_reader_init(&reader, &model->net, 0);
    cr_assert_eq(dunlin__param_read(&reader, 0, 0, 12, values, &error), DUNLIN_IO);
    net_expect_line(&error, DUNLIN_IO, "shortened");
    dunlin__param_reader_close(&reader);

    (void)unlink(path);
    dunlin__param_reader_init(&reader, &model->net, 0);
    cr_assert_eq(dunlin__param_read(&reader, 0, 0, 12, values, &error), DUNLIN_IO);
    net_expect_line(&error, DUNLIN_IO, "removed");
    dunlin__param_reader_close(&reader);
    dunlin_model_destroy(model);
    free(bytes);
}
