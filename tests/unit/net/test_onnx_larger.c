/*
 * test_onnx_larger.c - Resize and ConvTranspose in files: what is said in other words, what is
 * refused and why.
 */
#include "net_expect.h"
#include "net_support.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

typedef struct heard {
    char line[300];
    int n;
} heard;

static void hear(void *ctx, const dunlin_model_issue *issue)
{
    heard *all = ctx;
    all->n++;
    (void)snprintf(all->line, sizeof all->line, "%s/%s/%s: %s", issue->node, issue->op,
                   issue->attribute, issue->reason);
}

Test(onnx_larger, one_issue_each)
{
    static const struct {
        const char *file, *line;
    } cases[] = {
        {"resize_cubic.onnx", "up/Resize/mode: is cubic, not nearest or linear"},
        {"resize_crop.onnx", "up/Resize/coordinate_transformation_mode: is tf_crop_and_resize"},
        {"resize_channels.onnx", "up/Resize/: it changes the number of channels"},
        {"resize_batch.onnx", "up/Resize/scales: must be above 0"},
        {"resize_nothing.onnx", "up/Resize/scales: must be above 0"},
        {"resize_short.onnx", "up/Resize/scales: must be above 0"},
        {"resize_smooth.onnx", "up/Resize/antialias: is 1 where an image becomes smaller"},
        {"resize_aspect.onnx", "up/Resize/keep_aspect_ratio_policy: is not_larger, not stretch"},
        {"resize_axes.onnx", "up/Resize/axes: names a dimension that is not there"},
        {"resize_rounding.onnx", "up/Resize/nearest_mode: is odd"},
        {"resize_sizes.onnx", "up/Resize/sizes: "},
        {"transposed_more.onnx", "up/ConvTranspose/: "},
        {"transposed_shape.onnx", "up/ConvTranspose/output_shape: asks for a padding of -1"},
        {"transposed_auto.onnx", "up/ConvTranspose/auto_pad: is SAME, not NOTSET"},
        {"transposed_gone.onnx", "up/ConvTranspose/: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        heard all = {.n = 0};
        int32_t n = 0;
        dunlin_model *model = NULL;
        net_onnx_path(cases[i].file, path);
        cr_expect_eq(dunlin_model_check(path, NULL, hear, &all, &n, NULL), DUNLIN_OK);
        cr_expect_eq(n, 1, "%s: %d", cases[i].file, (int)n);
        cr_expect_eq(strncmp(all.line, cases[i].line, strlen(cases[i].line)), 0,
                     "%s: '%s' is not '%s'", cases[i].file, all.line, cases[i].line);
        cr_expect_eq(dunlin_model_open(path, NULL, &model, NULL), DUNLIN_UNSUPPORTED);
    }
}

static dunlin_model *open_file(const char *file)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_open(net_onnx_path(file, path), NULL, &model, &error), DUNLIN_OK,
                 "%s: %s", file, error.text);
    return model;
}

/* Padding that follows from the output's size; a half that another rounding takes off again. */
Test(onnx_larger, other_words)
{
    dunlin_model *model = open_file("transposed_same.onnx");
    /* Reach 2 of stride 2: nothing to take off; (4 - 1) * 3 + 2 + 2 = 13 of 12: one, before. */
    const dunlin_net_conv *conv = &model->net.nodes[1].u.conv;
    const dunlin_shape *y = &model->net.values[model->net.output].shape;
    cr_expect(conv->pad_top == 0 && conv->pad_bottom == 0);
    cr_expect(conv->pad_left == 1 && conv->pad_right == 0 && conv->extra_w == 2);
    cr_expect(y->dims[0] == 2 && y->dims[1] == 8 && y->dims[2] == 12);
    dunlin_model_destroy(model);
    model = open_file("transposed_sized.onnx");
    conv = &model->net.nodes[1].u.conv;
    cr_expect(conv->pad_top == 1 && conv->pad_bottom == 0 && conv->pad_left == 0);
    dunlin_model_destroy(model);
    model = open_file("resize_tf.onnx");
    const dunlin_net_resize *resize = &model->net.nodes[1].u.resize;
    cr_expect(resize->coordinates == DUNLIN_RESIZE_HALF_PIXEL &&
              resize->rounding == DUNLIN_RESIZE_ROUND_PREFER_CEIL);
    cr_expect(resize->out_h == 8 && resize->out_w == 8 && !resize->is_linear);
    dunlin_model_destroy(model);
}
