/*
 * test_external.c - weights beside the model, beyond 2 GiB of their file.
 */
#include "net_support.h"

#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_W = 12, N_B = 3 };

/* What far.onnx says lies there: 64 bytes of something else, w, b, from 3 GiB on. */
static void write_far(const char *path)
{
    float values[16 + N_W + N_B] = {0};
    for (int i = 0; i < N_W; i++) {
        values[16 + i] = net_formula("w", i);
    }
    for (int i = 0; i < N_B; i++) {
        values[16 + N_W + i] = net_formula("b", i);
    }
    const int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, values, sizeof values, (off_t)3 << 30), (ssize_t)sizeof values);
    (void)close(fd);
}

Test(external, weights_beyond_2_gib)
{
    char from[512];
    char folder[512];
    char path[600];
    char data[600];
    size_t n = 0;
    float w[N_W];
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    uint8_t *bytes = net_read_file(net_onnx_path("far.onnx", from), &n);
    cr_assert_eq(mkdir(net_temp_path("far", folder), 0700), 0);
    (void)snprintf(path, sizeof path, "%s/far.onnx", folder);
    (void)snprintf(data, sizeof data, "%s/far.bin", folder);
    net_write_file(path, bytes, n);
    free(bytes);
    cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_IO);
    cr_expect_not_null(strstr(error.text, "far.bin"), "%s", error.text);
    write_far(data);
    cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_OK, "%s", error.text);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 1;
    options.lr = 0.5F;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "w", w, N_W), DUNLIN_OK);
    for (int i = 0; i < N_W; i++) {
        cr_expect_eq(w[i], net_formula("w", i), "%d", i);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    /* One byte less than b needs. */
    cr_assert_eq(truncate(data, ((off_t)3 << 30) + 4 * (16 + N_W + N_B) - 1), 0);
    cr_expect_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_MODEL);
    cr_expect_not_null(strstr(error.text, "3221225584 + 12"), "%s", error.text);
    (void)unlink(path);
    (void)unlink(data);
    (void)rmdir(folder);
}
