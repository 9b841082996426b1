/*
 * test_onnx_places.c - a model is the same from a file, from memory and from a part of an open
 * file, weights included.
 */
#include "net_support.h"

#include <criterion/criterion.h>

#include <convert/read/onnx.h>
#include <fcntl.h>
#include <net/params.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEFORE = 4099, AFTER = 511 };

static void expect_same_weights(const dunlin_net *a, const dunlin_net *b)
{
    dunlin_param_reader reader_a;
    dunlin_param_reader reader_b;
    dunlin__param_reader_init(&reader_a, a, 3);
    dunlin__param_reader_init(&reader_b, b, 3);
    for (uint32_t i = 0; i < a->n_params; i++) {
        const int64_t n = a->params[i].n_elements;
        float *of_a = malloc((size_t)n * sizeof *of_a);
        float *of_b = malloc((size_t)n * sizeof *of_b);
        cr_assert_eq(dunlin__param_read(&reader_a, i, 0, n, of_a, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__param_read(&reader_b, i, 0, n, of_b, NULL), DUNLIN_OK);
        cr_assert_eq(memcmp(of_a, of_b, (size_t)n * sizeof *of_a), 0, "%s", a->params[i].name);
        free(of_a);
        free(of_b);
    }
    dunlin__param_reader_close(&reader_a);
    dunlin__param_reader_close(&reader_b);
}

static dunlin_model *open_path(const char *name)
{
    char path[512];
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open(net_onnx_path(name, path), NULL, &model, NULL), DUNLIN_OK);
    return model;
}

/* The model with other bytes on both sides, as an app's package holds it. */
static const char *write_package(const uint8_t *bytes, size_t n, char path[512])
{
    uint8_t *all = malloc(BEFORE + n + AFTER);
    cr_assert_not_null(all);
    memset(all, 0xA5, BEFORE + n + AFTER);
    memcpy(all + BEFORE, bytes, n);
    net_temp_path("package", path);
    net_write_file(path, all, BEFORE + n + AFTER);
    free(all);
    return path;
}

/* mirrored.onnx stores matrices transposed with respect to what the layers expect. */
static const char *const FILES[] = {"train17.onnx", "mirrored.onnx", "groups13.onnx"};

Test(onnx_places, memory_gives_the_same_model_and_weights)
{
    for (int i = 0; i < 3; i++) {
        char path[512];
        size_t n = 0;
        uint8_t *bytes = net_read_file(net_onnx_path(FILES[i], path), &n);
        dunlin_model *from_file = open_path(FILES[i]);
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin_model_open_memory(bytes, n, NULL, NULL, &model, &error), DUNLIN_OK,
                     "%s: %s", FILES[i], error.text);
        net_expect_equal(&from_file->net, &model->net);
        expect_same_weights(&from_file->net, &model->net);
        dunlin_model_destroy(model);
        dunlin_model_destroy(from_file);
        free(bytes);
    }
}

Test(onnx_places, a_part_of_an_open_file_gives_the_same_model_and_weights)
{
    for (int i = 0; i < 3; i++) {
        char path[512];
        size_t n = 0;
        uint8_t *bytes = net_read_file(net_onnx_path(FILES[i], path), &n);
        int fd = open(write_package(bytes, n, path), O_RDONLY);
        cr_assert_geq(fd, 0);
        cr_assert_eq(lseek(fd, 7, SEEK_SET), 7);
        dunlin_model *from_file = open_path(FILES[i]);
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        cr_assert_eq(dunlin_model_open_fd(fd, BEFORE, n, NULL, NULL, &model, &error), DUNLIN_OK,
                     "%s: %s", FILES[i], error.text);
        cr_expect_eq(lseek(fd, 0, SEEK_CUR), 7, "the position has moved");
        (void)close(fd);
        (void)unlink(path);
        net_expect_equal(&from_file->net, &model->net);
        expect_same_weights(&from_file->net, &model->net);
        dunlin_model_destroy(model);
        dunlin_model_destroy(from_file);
        free(bytes);
    }
}

Test(onnx_places, no_length_means_to_the_end)
{
    char path[512];
    dunlin_model *from_file = open_path("train17.onnx");
    int fd = open(net_onnx_path("train17.onnx", path), O_RDONLY);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open_fd(fd, 0, 0, NULL, NULL, &model, NULL), DUNLIN_OK);
    (void)close(fd);
    expect_same_weights(&from_file->net, &model->net);
    dunlin_model_destroy(from_file);
    dunlin_model_destroy(model);
}

Test(onnx_places, a_copy_reads_them_too_and_closes_what_is_its_own)
{
    char path[512];
    dunlin_model *from_file = open_path("train17.onnx");
    int fd = open(net_onnx_path("train17.onnx", path), O_RDONLY);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open_fd(fd, 0, 0, NULL, NULL, &model, NULL), DUNLIN_OK);
    dunlin_net copy;
    cr_assert_eq(dunlin__net_copy(&model->net, &model->alloc, &copy), DUNLIN_OK);
    dunlin_model_destroy(model);
    expect_same_weights(&from_file->net, &copy);
    dunlin__net_free(&copy);
    int next = open(path, O_RDONLY);
    cr_expect_eq(next, fd + 1, "a descriptor is left open");
    (void)close(next);
    (void)close(fd);
    dunlin_model_destroy(from_file);
}

Test(onnx_places, what_was_dropped_is_refused)
{
    char path[512];
    size_t n = 0;
    float value = 0;
    uint8_t *bytes = net_read_file(net_onnx_path("train17.onnx", path), &n);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open_memory(bytes, n, NULL, NULL, &model, NULL), DUNLIN_OK);
    dunlin__net_drop_store(&model->net);
    free(bytes);
    dunlin_param_reader reader;
    dunlin__param_reader_init(&reader, &model->net, 0);
    cr_expect_eq(dunlin__param_read(&reader, 0, 0, 1, &value, NULL), DUNLIN_STATE);
    dunlin__param_reader_close(&reader);
    dunlin_model_destroy(model);
}

Test(onnx_places, refusals)
{
    char path[512];
    size_t n = 0;
    int ends[2];
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    uint8_t *bytes = net_read_file(net_onnx_path("train17.onnx", path), &n);
    cr_expect_eq(dunlin_model_open_memory(NULL, n, NULL, NULL, &model, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_model_open_memory(bytes, n / 2, NULL, NULL, &model, &error), DUNLIN_MODEL);
    net_expect_line(&error, DUNLIN_MODEL, "half of the bytes");
    cr_expect_eq(dunlin_model_open_memory(bytes, 0, NULL, NULL, &model, &error), DUNLIN_MODEL);
    net_expect_line(&error, DUNLIN_MODEL, "no byte");
    free(bytes);

    int fd = open(path, O_RDONLY);
    cr_expect_eq(dunlin_model_open_fd(-1, 0, 0, NULL, NULL, &model, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_model_open_fd(fd, 1, n, NULL, NULL, &model, &error), DUNLIN_ARGUMENT);
    net_expect_line(&error, DUNLIN_ARGUMENT, "past the end");
    cr_expect_eq(dunlin_model_open_fd(fd, UINT64_MAX, 2, NULL, NULL, &model, &error),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_model_open_fd(fd, 0, n - 1, NULL, NULL, &model, &error), DUNLIN_MODEL);
    (void)close(fd);
    cr_expect_eq(dunlin_model_open_fd(fd, 0, n, NULL, NULL, &model, &error), DUNLIN_IO);
    net_expect_line(&error, DUNLIN_IO, "a closed descriptor");
    cr_assert_eq(pipe(ends), 0);
    cr_expect_eq(dunlin_model_open_fd(ends[0], 0, 0, NULL, NULL, &model, &error), DUNLIN_IO);
    net_expect_line(&error, DUNLIN_IO, "a pipe");

    bytes = net_read_file(net_onnx_path("external.onnx", path), &n);
    cr_expect_eq(dunlin_model_open_memory(bytes, n, NULL, NULL, &model, &error),
                 DUNLIN_UNSUPPORTED);
    net_expect_line(&error, DUNLIN_UNSUPPORTED, "external data");
    free(bytes);
    cr_expect_null(model);
}
