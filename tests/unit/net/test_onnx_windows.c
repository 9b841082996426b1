/*
 * test_onnx_windows.c - windows of an image, masks of padding that are made or given, attention
 * between two sequences: the numbers of PyTorch (onnx_windows.py), and what stands there in the
 * end.
 */
#include "net_expect.h"
#include "net_support.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(onnx_windows, .timeout = 900);

static void check_golden(const char *name)
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

/* Windows are rows of a sample; shifted ones have a mask of regions; biases of relative positions
 * are rows of a table that is trained. */
Test(onnx_windows, shifted_windows)
{
    check_golden("swin");
}
