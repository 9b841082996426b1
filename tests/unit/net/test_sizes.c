/*
 * test_sizes.c - files whose inputs leave more than the batch open are opened with the sizes given.
 */
#include "net_support.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

typedef struct newer_sizes {
    dunlin_model_sizes now;
    int32_t wish;
} newer_sizes;

static dunlin_status open(const char *name, const dunlin_model_sizes *sizes,
                          dunlin_shape *out_shape, dunlin_error *error)
{
    char path[512];
    dunlin_model *model = NULL;
    const dunlin_status status =
        dunlin_model_open_sized(net_onnx_path(name, path), sizes, NULL, &model, error);
    if (status == DUNLIN_OK) {
        *out_shape = dunlin_model_input_shape(model);
    } else {
        net_expect_line(error, status, name);
    }
    dunlin_model_destroy(model);
    return status;
}

Test(sizes, of_an_image)
{
    dunlin_error error = {0};
    dunlin_shape shape = {0};
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    cr_expect_eq(open("any_size.onnx", NULL, &shape, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "dimension 2 of input 'x' ('height') is dynamic"), "%s",
                       error.text);
    sizes.height = 9;
    cr_expect_eq(open("any_size.onnx", &sizes, &shape, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "('width')"), "%s", error.text);
    sizes.width = 5;
    cr_assert_eq(open("any_size.onnx", &sizes, &shape, &error), DUNLIN_OK, "%s", error.text);
    cr_expect(shape.n_dims == 3 && shape.dims[0] == 2 && shape.dims[1] == 9 && shape.dims[2] == 5);
    sizes.width = 2;
    cr_expect_eq(open("any_size.onnx", &sizes, &shape, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "window spans 3 in"), "%s", error.text);
    /* What has a number in the file keeps it. */
    cr_assert_eq(open("view17.onnx", &sizes, &shape, &error), DUNLIN_OK, "%s", error.text);
    cr_expect(shape.dims[1] == 6 && shape.dims[2] == 6);
}

Test(sizes, of_a_row)
{
    dunlin_error error = {0};
    dunlin_shape shape = {0};
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    sizes.length = 4;
    cr_assert_eq(open("dynamic.onnx", &sizes, &shape, &error), DUNLIN_OK, "%s", error.text);
    cr_expect(shape.n_dims == 1 && shape.dims[0] == 4);
    sizes.length = 5;
    cr_expect_eq(open("dynamic.onnx", &sizes, &shape, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "'w'"), "%s", error.text);
}

Test(sizes, a_check_of_the_same_file)
{
    char path[512];
    int32_t n = -1;
    dunlin_error error = {0};
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    net_onnx_path("any_size.onnx", path);
    cr_assert_eq(dunlin_model_check(path, NULL, NULL, NULL, &n, &error), DUNLIN_OK);
    cr_expect_eq(n, 1);
    sizes.height = sizes.width = 8;
    cr_assert_eq(dunlin_model_check_sized(path, &sizes, NULL, NULL, NULL, &n, &error), DUNLIN_OK);
    cr_expect_eq(n, 0);
    sizes.height = -8;
    cr_expect_eq(dunlin_model_check_sized(path, &sizes, NULL, NULL, NULL, &n, &error),
                 DUNLIN_ARGUMENT);
    net_expect_line(&error, DUNLIN_ARGUMENT, "a negative size");
}

/* Of an app that was built with another version of the header. */
Test(sizes, of_a_newer_app)
{
    dunlin_error error = {0};
    dunlin_shape shape = {0};
    newer_sizes newer = {.now = DUNLIN_MODEL_SIZES_INIT};
    newer.now.struct_size = sizeof newer;
    newer.now.length = 4;
    cr_expect_eq(open("dynamic.onnx", &newer.now, &shape, &error), DUNLIN_OK, "%s", error.text);
    newer.wish = 1;
    cr_expect_eq(open("dynamic.onnx", &newer.now, &shape, &error), DUNLIN_VERSION);
    const dunlin_model_sizes none = {.length = 4};
    cr_expect_eq(open("dynamic.onnx", &none, &shape, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_MODEL_SIZES_INIT"), "%s", error.text);
}
